package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// memberPatience is how long a member that receives nothing more is waited for.
const memberPatience = time.Minute

// reportInterval is how often progress is reported at most.
const reportInterval = 5 * time.Second

// NewCommand is what Jobs run.
func NewCommand(version string) *cobra.Command {
	cmd := &cobra.Command{Use: "import", Short: "Fill the first database of a new cluster from another server: what the operator's Jobs run"}
	cmd.AddCommand(&cobra.Command{
		Use: "postgres", Short: "Import a PostgreSQL database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := runImport(cmd.Context(), version)
			if backup.InVain(err) {
				return &backup.Exit{Code: agentapi.ExitPermanent, Err: err}
			}
			return err
		},
	})
	return cmd
}

func runImport(ctx context.Context, version string) error {
	var task agentapi.ImportTask
	if err := json.Unmarshal([]byte(os.Getenv(agentapi.EnvTask)), &task); err != nil {
		return newPermanent("%s is to hold the task: this runs in Jobs that the operator makes: %w", agentapi.EnvTask, err)
	}
	if task.Name == "" || task.UID == "" || task.Source.Host == "" || len(task.Hosts) == 0 {
		return newPermanent("the task lacks what it cannot do without: %+v", task)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "holdfast-import/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("set up the API client: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("cluster", task.Namespace+"/"+task.Name)
	reporter := &Reporter{Client: client, Task: task, Pod: os.Getenv(agentapi.EnvPodName), Log: log, Interval: reportInterval}
	result, err := importTask(ctx, task, log, reporter)
	if err != nil {
		log.Error("the import has failed", "error", err.Error())
	}
	return errorsOf(err, reporter.ReportEnd(context.WithoutCancel(ctx), Run{Err: err, Result: result}))
}

// errorsOf is the first of two that is an error.
func errorsOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func importTask(ctx context.Context, task agentapi.ImportTask, log *slog.Logger, reporter *Reporter) (*v1alpha1.ImportResult, error) {
	programs, err := backup.FindPostgres("pg_dump", "pg_restore", "psql")
	if err != nil {
		return nil, err
	}
	source, target, err := ReadServers(task, agentapi.ImportDir, "/tmp")
	if err != nil {
		return nil, err
	}
	i := &Importer{Source: source, Target: target, Members: target.split(), Patience: memberPatience, UID: task.UID, DatabaseHash: task.DatabaseHash, Programs: programs, Log: log, Report: reporter.ReportProgress}
	return i.Import(ctx)
}

// Reporter reports into the ConfigMap of the cluster.
type Reporter struct {
	Client   kubernetes.Interface
	Task     agentapi.ImportTask
	Pod      string
	Log      *slog.Logger
	Interval time.Duration

	step string
	last time.Time
}

// ReportProgress reports a step when it begins, and its progress now and then.
func (r *Reporter) ReportProgress(ctx context.Context, run Run) {
	if run.Step == r.step && time.Since(r.last) < r.Interval {
		return
	}
	r.Log.Info("import", "step", run.Step, "progress", run.Progress)
	if err := r.apply(ctx, run); err != nil && ctx.Err() == nil {
		r.Log.Warn("cannot report", "error", err.Error())
	}
	r.step, r.last = run.Step, time.Now() // the copy goes on as long between two that time out
}

// ReportEnd tries for ten minutes to report how the import ended.
func (r *Reporter) ReportEnd(ctx context.Context, run Run) error {
	var err error
	waited := wait.PollUntilContextTimeout(ctx, r.Interval, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		if err = r.apply(ctx, run); err != nil {
			r.Log.Warn("cannot report how it ended", "error", err.Error())
		}
		return err == nil, nil
	})
	if err = errorsOf(err, waited); err != nil {
		return fmt.Errorf("report how it ended: %w", err)
	}
	return nil
}

func (r *Reporter) apply(ctx context.Context, run Run) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data := map[string]string{
		agentapi.RestoreKeyClusterUID: r.Task.UID, agentapi.RestoreKeyPod: r.Pod, agentapi.ImportKeySource: r.Task.SourceHash,
		agentapi.RestoreKeyStep: run.Step, agentapi.RestoreKeyProgress: run.Progress,
	}
	if run.Err != nil {
		data[agentapi.RestoreKeyError] = run.Err.Error()
		data[agentapi.RestoreKeyPermanent] = strconv.FormatBool(backup.InVain(run.Err))
	} else if run.Result != nil {
		result, err := json.Marshal(run.Result)
		if err != nil {
			return fmt.Errorf("render the result: %w", err)
		}
		data[agentapi.ImportKeyResult] = string(result)
	}
	object := corev1ac.ConfigMap(r.Task.Name+v1alpha1.SuffixImport, r.Task.Namespace).WithData(data)
	_, err := r.Client.CoreV1().ConfigMaps(r.Task.Namespace).Apply(ctx, object, metav1.ApplyOptions{FieldManager: v1alpha1.ImportFieldManager, Force: true})
	return err
}
