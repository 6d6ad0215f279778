package mysql

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
)

// A backup goes to no older server, and to no other series.
func TestCheckFit(t *testing.T) {
	const size = 1 << 30
	cases := []struct{ name, backup, image, says string }{
		{"the same version", "9.7.4", "9.7.4", ""},
		{"a newer patch", "9.7.4", "9.7.12", ""},
		{"a distribution's mark", "9.7.4-2", "9.7.4", ""},
		{"an older patch", "9.7.4", "9.7.3", `set it to "9.7.4" or newer`},
		{"the next series", "8.4.11", "9.7.4", `set it to "8.4"`},
		{"the series before", "9.7.4", "8.4.11", `set it to "9.7"`},
		{"no version", "", "9.7.4", "unknown version"},
	}
	for _, c := range cases {
		version, ok := mysqlversion.Parse(c.image)
		if !ok {
			t.Fatal(c.image)
		}
		need, err := (&Engine{Version: version}).CheckFit(t.Context(), backup.Manifest{Version: c.backup, DataSize: size})
		switch {
		case c.says == "" && (err != nil || need <= size):
			t.Errorf("%s: %d, %v", c.name, need, err)
		case c.says != "" && (!backup.InVain(err) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestCheckEnd(t *testing.T) {
	const set = "5b8f3c1e-0000-5000-8000-000000000001:1-9"
	cases := []struct{ name, data, manifest, says string }{
		{"the same", set, set, ""},
		{"the same in another form", "5B8F3C1E-0000-5000-8000-000000000001:1-4:5-9", set, ""},
		{"less", "5b8f3c1e-0000-5000-8000-000000000001:1-8", set, "lacks the transactions"},
		{"more", "5b8f3c1e-0000-5000-8000-000000000001:1-10", set, "has beside them"},
		{"a manifest that is none", set, "x", "in the manifest"},
	}
	for _, c := range cases {
		if err := checkEnd(c.data, c.manifest); (err == nil) != (c.says == "") || err != nil && (!backup.InVain(err) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The binlog is not archived: the API server refuses a target, and so does a restore.
func TestNoTarget(t *testing.T) {
	err := (&Engine{}).CheckArchive(t.Context(), nil, backup.Manifest{}, v1alpha1.RestoreTarget{Latest: true})
	if !backup.InVain(err) || !strings.Contains(err.Error(), "spec.restore.target") {
		t.Error(err)
	}
}
