package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// NewCommand is what Jobs run; engines make the Engine of a task, by the name that
// the database's container has.
func NewCommand(version string, engines map[string]func(agentapi.RestoreTask) (Engine, error)) *cobra.Command {
	cmd := &cobra.Command{Use: "restore", Short: "Fill the volume of a new cluster's first member from a backup: what the operator's Jobs run"}
	for name, engine := range engines {
		cmd.AddCommand(&cobra.Command{
			Use: name, Short: "Restore " + name, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				err := runRestore(cmd.Context(), version, engine)
				if backup.InVain(err) {
					return &backup.Exit{Code: agentapi.ExitPermanent, Err: err}
				}
				return err
			},
		})
	}
	return cmd
}

func runRestore(ctx context.Context, version string, newEngine func(agentapi.RestoreTask) (Engine, error)) error {
	task, err := readTask()
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "holdfast-restore/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("cluster", task.Namespace+"/"+task.Name)
	reporter := &ConfigMap{Client: client, Task: task, Pod: os.Getenv(agentapi.EnvPodName), Log: log, Pause: 5 * time.Second, Limit: 10 * time.Minute}
	engine, err := newEngine(task)
	if err != nil {
		reporter.ReportProgress(ctx, Run{Err: err})
		return err
	}
	r := &Restorer{
		Task: task, Volume: agentapi.DataDir, Engine: engine, Reporter: reporter, Log: log,
		Open: func(ctx context.Context) (*store.Store, error) { return backup.OpenStore(ctx, task.Store) },
	}
	return r.RestoreVolume(ctx)
}

func readTask() (task agentapi.RestoreTask, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(agentapi.EnvTask)), &task); err != nil {
		return task, newPermanent("%s is to hold the task: this runs in Jobs that the operator makes: %w", agentapi.EnvTask, err)
	}
	if task.Name == "" || task.UID == "" || task.Member == "" || task.Manifest == "" && task.Prefix == "" {
		return task, newPermanent("the task lacks what it cannot do without: %+v", task)
	}
	return task, nil
}
