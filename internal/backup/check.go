package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// checkPatience is for a store that does not answer: its state is waited for,
// and it is asked again later.
var checkPatience = store.Patience{First: time.Second, Longest: 10 * time.Second, Total: time.Minute}

// terminationLog is where a container leaves its last words.
const terminationLog = "/dev/termination-log"

// NewCheckCommand tries whether a store can be used, once, and leaves what it found
// where the operator reads it.
func NewCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check-store", Short: "Try whether a store takes, gives and forgets objects of a cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exitError(checkStore(cmd.Context(), terminationLog))
		},
	}
}

func checkStore(ctx context.Context, lastWords string) error {
	err := tryStore(ctx)
	if err != nil {
		// Where this cannot be written, the last lines of the text log stand for it.
		_ = os.WriteFile(lastWords, []byte(DescribeFault(err, false)), 0o600)
	}
	return err
}

func tryStore(ctx context.Context) error {
	var task agentapi.CheckTask
	if err := json.Unmarshal([]byte(os.Getenv(agentapi.EnvTask)), &task); err != nil {
		return &Permanent{fmt.Errorf("%s is to hold the task: this runs in Jobs that the operator makes: %w", agentapi.EnvTask, err)}
	}
	if !strings.HasSuffix(task.Prefix, "/") {
		return &Permanent{fmt.Errorf("the task has no prefix: %q", task.Prefix)}
	}
	s, err := OpenStore(ctx, task.Store)
	if err != nil {
		return err
	}
	s.Patience = checkPatience
	return errors.Join(s.CheckAccess(ctx, task.Prefix), s.Close())
}

// DescribeFault names the field of the destination that an error is in, where it is in
// one. A volume has no such fields: its errors name their own.
func DescribeFault(err error, onVolume bool) string {
	var of *store.Error
	if errors.As(err, &of) && of.Field != "" && !onVolume {
		return "spec.backup.destination." + of.Field + ": " + err.Error()
	}
	return err.Error()
}
