//go:build postgres

package postgres

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A parameter that only the start refuses keeps no database down, and what is
// said of it names the field and the remedy.
func TestRealTooMuchSharedMemory(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.stop()
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"shared_buffers": "256MB", "huge_pages": "on"}
	})
	again := w.start(0, volume, "uid-0b")
	said := again.until("serving without it", func(s agentapi.Status) bool { return s.Serving && s.ConfigError != "" })
	for _, want := range []string{"the database does not start: ", "memory", "shared_buffers is 256MB", "spec.parameters.shared_buffers", "spec.resources.limits.memory"} {
		if !strings.Contains(said.ConfigError, want) {
			t.Errorf("%q does not say %q", said.ConfigError, want)
		}
	}
}
