package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

const verbSweep = "sweep"

// PruneFunc removes what no backup that stays needs of the archive below a prefix, and says
// how many files that were. Kept are where those backups begin.
type PruneFunc func(ctx context.Context, s *store.Store, prefix string, kept []string) (int, error)

// NewCommand is what Jobs run; sources make the Source of a task, by the name
// that its engine's container has. Pruners know the archive of a kind of cluster.
func NewCommand(version string, sources map[string]func(agentapi.BackupTask) (Source, error), pruners map[string]PruneFunc) *cobra.Command {
	cmd := &cobra.Command{Use: "backup", Short: "Copy a database to a store, or remove such a copy: what the operator's Jobs run"}
	for name, source := range sources {
		cmd.AddCommand(&cobra.Command{
			Use: name, Short: "Back up " + name, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return exitError(runBackup(cmd.Context(), version, source))
			},
		})
	}
	for verb, short := range map[string]string{
		"remove":  "Remove what a backup has stored",
		verbSweep: "Remove what an abandoned backup has stored, unless it is whole",
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb, Short: short, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return exitError(runRemoval(cmd.Context(), verb == verbSweep, pruners))
			},
		})
	}
	return cmd
}

// Exit is an error with the exit code of the program.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string { return e.Err.Error() }

// Unwrap makes the error itself known.
func (e *Exit) Unwrap() error { return e.Err }

func exitError(err error) error {
	if InVain(err) {
		return &Exit{agentapi.ExitPermanent, err}
	}
	return err
}

func runBackup(ctx context.Context, version string, source func(agentapi.BackupTask) (Source, error)) error {
	task, err := readTask()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "holdfast-backup/" + version
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	log := newLogger(task)
	t := &Taker{
		Task: task, Pod: os.Getenv(agentapi.EnvPodName), Log: log, Source: source,
		Open:     func(ctx context.Context) (*store.Store, error) { return openStore(ctx, task) },
		Reporter: &Object{Client: client, Task: task, Log: log, Cancel: cancel},
	}
	return t.TakeBackup(ctx)
}

func runRemoval(ctx context.Context, unlessWhole bool, pruners map[string]PruneFunc) error {
	task, err := readTask()
	if err != nil {
		return err
	}
	s, err := openStore(ctx, task)
	if err != nil {
		return err
	}
	if unlessWhole {
		stored, err := s.List(ctx, task.Prefix)
		if err != nil {
			return err
		}
		for _, o := range stored {
			if isManifest(o.Key) {
				newLogger(task).Info("the backup is whole and stays", "manifest", o.Key)
				return s.Close()
			}
		}
	}
	if err := eraseObjects(ctx, s, task.Prefix); err != nil {
		return err
	}
	newLogger(task).Info("the backup is removed", "prefix", task.Prefix)
	if err := pruneArchive(ctx, s, task, pruners[task.Kind]); err != nil {
		return err
	}
	return s.Close()
}

// pruneArchive removes what no other backup needs of the archive beside one that is removed.
func pruneArchive(ctx context.Context, s *store.Store, task agentapi.BackupTask, prune PruneFunc) error {
	if task.Log == nil || prune == nil {
		return nil
	}
	files, err := prune(ctx, s, task.Log.Prefix, task.Log.Kept)
	if err != nil {
		return err
	}
	newLogger(task).Info("archived files that no backup needs are removed", "prefix", task.Log.Prefix, "files", files)
	return nil
}

func newLogger(task agentapi.BackupTask) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("backup", task.Namespace+"/"+task.Name)
}

func readTask() (task agentapi.BackupTask, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(agentapi.EnvTask)), &task); err != nil {
		return task, &Permanent{fmt.Errorf("%s is to hold the task: this runs in Jobs that the operator makes: %w", agentapi.EnvTask, err)}
	}
	if task.Prefix == "" || !strings.HasSuffix(task.Prefix, "/") {
		return task, &Permanent{fmt.Errorf("the task has no prefix: %q", task.Prefix)}
	}
	return task, nil
}

func openStore(ctx context.Context, task agentapi.BackupTask) (*store.Store, error) {
	return OpenStore(ctx, task.Store)
}
