package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJSONRecord(t *testing.T) {
	type record struct{ Term int64 }
	path := filepath.Join(t.TempDir(), "record.json")
	var r record
	if found, err := ReadJSON(path, &r); found || err != nil {
		t.Errorf("a record that is not there: %t, %v", found, err)
	}
	if err := WriteJSON(path, record{7}); err != nil {
		t.Fatal(err)
	}
	if found, err := ReadJSON(path, &r); !found || err != nil || r.Term != 7 {
		t.Errorf("read %+v, %t, %v", r, found, err)
	}
	if err := os.WriteFile(path, []byte(`{"Term":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := ReadJSON(path, &r); found || err == nil || !strings.Contains(err.Error(), "record.json") {
		t.Errorf("half a record: %t, %v", found, err)
	}
}
