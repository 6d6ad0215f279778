package serverfiles

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/parameters"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
)

// What a database ran with is read again from its volume, with what of it was tuned: a volume
// that a deleted cluster left does not bring its tuned values back, whatever its next one declares.
func TestProvenParameters(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(Options{Log: slog.New(slog.DiscardHandler), Volume: dir})
	if got := f.ReadProven(); got.Parameters != nil || got.Values != nil {
		t.Errorf("on an empty volume is %+v", got)
	}
	ran := parameters.ReadTuned(map[string]string{"jit": "off", "work_mem": "8MB"}, []string{"work_mem"})
	f.RecordProven(ran)
	if diff := cmp.Diff(ran, f.ReadProven()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	next := f.ReadProven().Follow(map[string]string{"jit": "maybe"}, nil)
	if diff := cmp.Diff(map[string]string{"jit": "off"}, next.Parameters); diff != "" {
		t.Errorf("another cluster starts with (-want +got):\n%s", diff)
	}
	// Files that begin with a dot are none that an agent finds unknown on a volume.
	if observed, err := datavolume.InspectVolume(dir); err != nil || observed.Content != datavolume.ContentEmpty || observed.Unknown != "" {
		t.Errorf("%+v, %v", observed, err)
	}
	for range 2 {
		f.RecordProven(parameters.ReadTuned(map[string]string{"work_mem": "8MB"}, nil))
		if got := f.ReadProven(); len(got.Values) > 0 || got.Parameters["work_mem"] != "8MB" {
			t.Errorf("what is declared counts as tuned: %+v", got)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, datavolume.TunedName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.ReadProven(); got.Values != nil || got.Parameters["work_mem"] != "8MB" {
		t.Errorf("with a broken file: %+v", got)
	}
}
