package server

import (
	"os/exec"
	"strings"
	"testing"
)

// end runs a shell script and returns how it ended.
func end(t *testing.T, script string) error {
	t.Helper()
	return exec.CommandContext(t.Context(), "/bin/sh", "-c", script).Run()
}

func TestAnEndHasAReason(t *testing.T) {
	settings := map[string]string{"shared_buffers": "100GB"}
	const remedy = "shared_buffers is 100GB: lower spec.parameters.shared_buffers, or raise spec.resources.limits.memory"
	for _, tc := range []struct {
		name, fatal, script, want string
		remedy                    bool
	}{
		{"the log says why", `database files are incompatible with server`, "exit 1", "database files are incompatible", false},
		{"shared memory cannot be mapped", "could not map anonymous shared memory: Cannot allocate memory", "exit 1", "could not map anonymous shared memory", true},
		{"the kernel killed it", "", "kill -KILL $$", "it was killed", true},
		{"another signal", "", "kill -TERM $$", "its log does not say why (signal: terminated)", false},
		{"an exit code alone", "", "exit 3", "its log does not say why (exit status 3)", false},
		{"an end in order", "", "exit 0", "it ended in order", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := AddRemedy(describeEnd(tc.fatal, end(t, tc.script)), settings)
			if !strings.Contains(got, tc.want) || strings.Contains(got, remedy) != tc.remedy {
				t.Errorf("%q", got)
			}
		})
	}
}
