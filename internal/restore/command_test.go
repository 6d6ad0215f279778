package restore

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// What is no task is refused for good, with the code that ends a Job.
func TestCommandRefuses(t *testing.T) {
	cases := map[string]struct{ task, says string }{
		"no task":                  {"", "this runs in Jobs"},
		"a task for no cluster":    {`{"namespace":"shop","prefix":"shop/orders/"}`, "lacks"},
		"a task without a backup":  {`{"name":"again","uid":"u","member":"again-0"}`, "lacks"},
		"a task without a cluster": {`{"uid":"u","member":"again-0","manifest":"m"}`, "lacks"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv(agentapi.EnvTask, tc.task)
			cmd := NewCommand("test", map[string]func(agentapi.RestoreTask) (Engine, error){"postgres": func(agentapi.RestoreTask) (Engine, error) {
				t.Error("an engine was made")
				return nil, nil //nolint:nilnil // never reached
			}})
			cmd.SetArgs([]string{"postgres"})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			var ended *backup.Exit
			if !errors.As(err, &ended) || ended.Code != agentapi.ExitPermanent || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v", err)
			}
		})
	}
}
