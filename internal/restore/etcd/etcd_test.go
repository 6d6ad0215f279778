package etcd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// Only what the image's etcd may take over, and restore as it must be, fits.
func TestFits(t *testing.T) {
	cases := map[string]struct{ image, backup, help, says string }{
		"the same":                     {"3.6.16", "3.6.16", bumpFlag, ""},
		"an older patch":               {"3.6.16", "3.6.0", bumpFlag, ""},
		"a newer patch":                {"3.6.0", "3.6.16", bumpFlag, ""},
		"the minor version before":     {"3.6.16", "3.5.9", bumpFlag, ""},
		"two minor versions before":    {"3.7.0", "3.5.9", bumpFlag, `set it to "3.6" first`},
		"a newer minor version":        {"3.5.21", "3.6.16", bumpFlag, `set it to "3.6" or newer`},
		"an unknown one":               {"3.6.16", "later", bumpFlag, "unknown version"},
		"an etcd that cannot raise it": {"3.5.9", "3.5.9", "--data-dir", "3.5.10"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "etcdutl"), []byte("#!/bin/sh\necho '  "+tc.help+" uint'\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			e := &Engine{Version: tc.image, Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}}
			need, err := e.CheckFit(t.Context(), backup.Manifest{Version: tc.backup, DataSize: 1 << 30})
			if tc.says == "" && (err != nil || need <= 2<<30) || tc.says != "" && (!backup.InVain(err) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%d, %v; want %q", need, err, tc.says)
			}
		})
	}
}
