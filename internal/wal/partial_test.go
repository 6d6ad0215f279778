package wal

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A partial segment that differs from the one in the archive is stored beside it:
// it replaces nothing, holds up nothing, and no recovery reads it.
func TestPutPartialThatDiffers(t *testing.T) {
	a, stored := archive(t)
	ctx := t.Context()
	const whole, name = "000000010000000000000007", "000000010000000000000007.partial"
	first, second := segment(t, t.TempDir(), name, 1), segment(t, t.TempDir(), name, 2)
	for range 2 { // what was interrupted is stored again
		for _, path := range []string{first, second} {
			if err := a.StoreFile(ctx, path, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := os.ReadDir(filepath.Join(stored, "00000001"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for path, object := range map[string]string{first: name, second: strings.TrimSuffix(other(files[0].Name(), files[1].Name(), name+".zst"), ".zst")} {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := a.readStored(ctx, object, func(r io.Reader) error { _, err := got.ReadFrom(r); return err }); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s holds another content: %v", object, err)
		}
	}
	if found, err := a.ListSegments(ctx, 1); len(found) != 0 || err != nil {
		t.Errorf("a recovery takes %v, %v", found, err)
	}
	if there, err := a.HasFile(ctx, whole); there || err != nil {
		t.Errorf("it passes for the whole segment, %v", err)
	}
	if err := a.StoreFile(ctx, segment(t, t.TempDir(), "000000020000000000000009", 1), "000000020000000000000009"); err != nil {
		t.Fatal(err)
	}
	if n, err := a.PruneFiles(ctx, []string{"2:0/900028"}); n != 2 || err != nil {
		t.Errorf("%d are removed, %v", n, err)
	}
}

func other(a, b, not string) string {
	if a == not {
		return b
	}
	return a
}
