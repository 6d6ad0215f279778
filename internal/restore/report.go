package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// ConfigMap reports into the one of the cluster that is restored.
type ConfigMap struct {
	Client kubernetes.Interface
	Task   agentapi.RestoreTask
	Pod    string
	Log    *slog.Logger
	// Pause between two tries to report how it ended, and Limit of all of them.
	Pause, Limit time.Duration
}

// ReportProgress implements Reporter.
func (c *ConfigMap) ReportProgress(ctx context.Context, run Run) {
	if err := c.applyRun(ctx, run); err != nil && ctx.Err() == nil {
		c.Log.Warn("cannot report", "error", err.Error())
	}
}

// ReportEnd implements Reporter.
func (c *ConfigMap) ReportEnd(ctx context.Context, run Run) error {
	var err error
	waited := wait.PollUntilContextTimeout(ctx, c.Pause, c.Limit, true, func(ctx context.Context) (bool, error) {
		if err = c.applyRun(ctx, run); err != nil {
			c.Log.Warn("cannot report how it ended", "error", err.Error())
		}
		return err == nil, nil
	})
	if err == nil {
		err = waited
	}
	if err != nil {
		return fmt.Errorf("report how it ended: %w", err)
	}
	return nil
}

func (c *ConfigMap) applyRun(ctx context.Context, run Run) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := c.renderData(run)
	if err != nil {
		return err
	}
	object := corev1ac.ConfigMap(c.Task.Name+v1alpha1.SuffixRestore, c.Task.Namespace).WithData(data)
	_, err = c.Client.CoreV1().ConfigMaps(c.Task.Namespace).Apply(ctx, object, metav1.ApplyOptions{FieldManager: v1alpha1.RestoreFieldManager, Force: true})
	return err
}

func (c *ConfigMap) renderData(run Run) (map[string]string, error) {
	data := map[string]string{
		agentapi.RestoreKeyClusterUID: c.Task.UID, agentapi.RestoreKeyPod: c.Pod,
		agentapi.RestoreKeyStep: run.Step, agentapi.RestoreKeyProgress: run.Progress,
	}
	if run.Err != nil {
		data[agentapi.RestoreKeyError] = run.Err.Error()
		data[agentapi.RestoreKeyPermanent] = strconv.FormatBool(backup.InVain(run.Err))
	}
	if run.Result != nil {
		result, err := json.Marshal(run.Result)
		if err != nil {
			return nil, fmt.Errorf("render the result: %w", err)
		}
		data[agentapi.RestoreKeyResult] = string(result)
	}
	return data, nil
}
