package datavolume

import (
	"path/filepath"
	"testing"
)

// A copy that takes the place of data that is half rewound is whole, and the data stays
// marked: a crash in between changes nothing of that.
func TestRule18MarkFollowsTheData(t *testing.T) {
	for name, lay := range map[string][]string{
		"beside the first data set aside": {OldName},
		"beside a later one":              {OldName, DropName},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, aside := range append(lay, CopyName) {
				mustWrite(t, filepath.Join(dir, aside, "PG_VERSION"), "17\n")
			}
			mustWrite(t, filepath.Join(dir, CompleteName), "")
			mustWrite(t, filepath.Join(dir, RewindName), "{}")
			marked := filepath.Join(dir, lay[len(lay)-1])
			if err := TidyVolume(dir); err != nil {
				t.Fatal(err)
			}
			if mark, err := FindRewindMark(dir); mark != "" || err != nil {
				t.Errorf("the copy is marked: %s, %v", mark, err)
			}
			if lay[len(lay)-1] == DropName {
				return // tidied away
			}
			// A person puts the old data back.
			back := t.TempDir()
			copied, err := filepath.Glob(filepath.Join(marked, RewindName))
			if err != nil || len(copied) != 1 {
				t.Fatalf("the old data is not marked: %v, %v", copied, err)
			}
			mustWrite(t, filepath.Join(back, DataName, RewindName), "{}")
			if mark, err := FindRewindMark(back); mark == "" || err != nil {
				t.Errorf("the old data that was put back is not marked: %v", err)
			}
		})
	}
}
