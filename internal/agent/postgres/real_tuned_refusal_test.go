//go:build postgres

package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A declared setting that is refused keeps no value in force that was tuned, neither while the
// server runs nor at its next start. What was declared before stays.
func TestRealTunedValueGoesThoughASettingIsRefused(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	const show = "select current_setting('work_mem') || ' ' || current_setting('jit')"
	computed := strings.Fields(primary.query(show))[0]
	until := func(r *run, want string) {
		t.Helper()
		got := ""
		for range 100 {
			if got = r.query(show); got == want {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatalf("in force is %q, want %q", got, want)
	}
	tune := func(c *agentapi.ClusterConfig) {
		c.Parameters, c.Tuned = map[string]string{"work_mem": "9MB", "jit": "off"}, []string{"work_mem"}
	}
	hash := w.configure(tune)
	primary.until("tuned", func(s agentapi.Status) bool { return s.ConfigHash == hash })
	until(primary, "9MB off")

	refuse := func(c *agentapi.ClusterConfig) {
		c.Parameters, c.Tuned = map[string]string{"work_memm": "1MB", "jit": "on"}, nil
	}
	w.configure(refuse)
	primary.until("refusing", func(s agentapi.Status) bool { return s.ConfigError != "" })
	until(primary, computed+" off")
	for name, want := range map[string]bool{datavolume.ParametersName: false, datavolume.TunedName: false} {
		text, err := os.ReadFile(filepath.Join(volume, name))
		if err == nil && strings.Contains(string(text), "9MB") != want {
			t.Errorf("%s has %s", name, text)
		}
	}

	// What was tuned is declared again as it was: it is not in force by itself.
	hash = w.configure(tune)
	primary.until("tuned again", func(s agentapi.Status) bool { return s.ConfigHash == hash && s.ConfigError == "" })
	until(primary, "9MB off")

	// The same at a start, also of a volume that another cluster used.
	primary.stop()
	w.configure(refuse)
	again := w.start(0, volume, "uid-0b")
	again.untilRole(v1alpha1.RolePrimary)
	again.until("refusing", func(s agentapi.Status) bool { return s.ConfigError != "" })
	until(again, computed+" off")
}
