package mysql

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// What was prepared for a clone goes where none is to come, and where another process, which
// may be of another version, prepared it.
func TestTidyPrepared(t *testing.T) {
	for _, c := range []struct {
		name     string
		prepared bool
		action   startplan.Action
		kept     bool
	}{
		{"before a clone", true, startplan.Clone, true},
		{"while the first member is awaited", true, startplan.AwaitFirst, true},
		{"by an earlier process", false, startplan.Clone, false},
		{"beside data", true, startplan.Start, false},
		{"of a member that is held", true, startplan.Hold, false},
	} {
		a := newTestRun(t, agentapi.ClusterConfig{}).mysqlAgent
		dir := filepath.Join(a.o.DataDir, datavolume.PreparedName)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		a.prepared = c.prepared
		if err := a.tidyPrepared(startplan.Plan{Action: c.action}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); (err == nil) != c.kept || a.prepared != c.kept {
			t.Errorf("%s: %v, prepared %v", c.name, err, a.prepared)
		}
	}
}
