package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// NewDrillCommand is what Jobs run that restore on trial.
func NewDrillCommand(engines map[string]func(agentapi.RestoreTask) (Engine, error)) *cobra.Command {
	cmd := &cobra.Command{Use: "drill", Short: "Restore a backup on trial, and look at what came of it: what the operator's Jobs run"}
	for name, engine := range engines {
		cmd.AddCommand(&cobra.Command{
			Use: name, Short: "Restore " + name + " on trial", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				report, err := runDrill(cmd.Context(), engine)
				err = errors.Join(err, leaveReport(agentapi.TerminationLog, report))
				if backup.InVain(err) {
					return &backup.Exit{Code: agentapi.ExitPermanent, Err: err}
				}
				return err
			},
		})
	}
	return cmd
}

func runDrill(ctx context.Context, newEngine func(agentapi.RestoreTask) (Engine, error)) (agentapi.DrillReport, error) {
	task, err := readTask()
	if err != nil {
		return agentapi.DrillReport{Error: err.Error()}, err
	}
	engine, err := newEngine(task)
	if err != nil {
		return agentapi.DrillReport{Error: err.Error()}, err
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("cluster", task.Namespace+"/"+task.Name)
	r := &Restorer{
		Task: task, Volume: agentapi.DataDir, Engine: engine, Reporter: &logReporter{log: log}, Log: log,
		Open: func(ctx context.Context) (*store.Store, error) { return backup.OpenStore(ctx, task.Store) },
	}
	return r.DrillBackup(ctx)
}

// DrillBackup restores a backup on trial, as RestoreVolume does, and has the database read
// all of it. Where an attempt before was cut off, it goes on from what is on the
// volume.
func (r *Restorer) DrillBackup(ctx context.Context) (agentapi.DrillReport, error) {
	report, err := r.restoreAndCheck(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = explainFailure(err)
		}
		report.Error = err.Error()
		r.Log.Error("the drill failed", "error", report.Error, "permanent", backup.InVain(err))
		return report, err
	}
	r.Log.Info("the backup is good", "backup", report.Backup, "checked", report.Checked)
	return report, nil
}

func (r *Restorer) restoreAndCheck(ctx context.Context) (report agentapi.DrillReport, err error) {
	result, err := r.restoreBackup(ctx)
	if err != nil {
		return report, err
	}
	report.Backup, report.Size = result.Backup, result.Size.Value()
	report.Checked = []string{"restored up to " + result.EndPosition}
	r.Log.Info("restored, and looked at", "backup", result.Backup, "end", result.EndPosition)
	lock, err := volumelock.LockVolume(r.Volume)
	if err != nil {
		return report, err
	}
	defer func() { _ = lock.Close() }()
	checked, err := r.Engine.CheckData(ctx, lock, filepath.Join(r.Volume, r.Engine.VolumeLayout().Data))
	report.Checked = append(report.Checked, checked...)
	if err != nil {
		return report, fmt.Errorf("look at the restored database: %w", err)
	}
	return report, nil
}

// leaveReport writes a report as the last words of the container, cut so that it stays what
// can be read.
func leaveReport(path string, report agentapi.DrillReport) error {
	const most = agentapi.TerminationLimit / 4 // what JSON needs for a byte is rarely more than two
	report.Error = cutText(report.Error, most)
	for {
		data, err := json.Marshal(report)
		if err != nil {
			return fmt.Errorf("render the report: %w", err)
		}
		switch n := len(report.Checked); {
		case len(data) <= agentapi.TerminationLimit:
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return fmt.Errorf("leave the report: %w", err)
			}
			return nil
		case n > 0:
			report.Checked = report.Checked[:n-1]
		default:
			report.Error = cutText(report.Error, len(report.Error)/2)
		}
	}
}

func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// logReporter reports the steps in the text log: nothing else reads them before the
// end.
type logReporter struct {
	log  *slog.Logger
	last string
}

func (l *logReporter) ReportProgress(_ context.Context, run Run) {
	if run.Step != l.last {
		l.last = run.Step
		l.log.Info(strings.ToLower(run.Step))
	}
}

func (l *logReporter) ReportEnd(context.Context, Run) error { return nil }
