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

// DrillCommand is what Jobs run that restore on trial.
func DrillCommand(engines map[string]func(agentapi.RestoreTask) (Engine, error)) *cobra.Command {
	cmd := &cobra.Command{Use: "drill", Short: "Restore a backup on trial, and look at what came of it: what the operator's Jobs run"}
	for name, engine := range engines {
		cmd.AddCommand(&cobra.Command{
			Use: name, Short: "Restore " + name + " on trial", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				report, err := runDrill(cmd.Context(), engine)
				err = errors.Join(err, leave(agentapi.TerminationLog, report))
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
		Task: task, Volume: agentapi.DataDir, Engine: engine, Reporter: &logged{log: log}, Log: log,
		Open: func(ctx context.Context) (*store.Store, error) { return backup.OpenStore(ctx, task.Store) },
	}
	return r.Drill(ctx)
}

// Drill restores a backup on trial, as Restore does, and has the database read
// all of it. Where an attempt before was cut off, it goes on from what is on the
// volume.
func (r *Restorer) Drill(ctx context.Context) (agentapi.DrillReport, error) {
	report, err := r.drill(ctx)
	if err != nil {
		if ctx.Err() == nil {
			err = explain(err)
		}
		report.Error = err.Error()
		r.Log.Error("the drill failed", "error", report.Error, "permanent", backup.InVain(err))
		return report, err
	}
	r.Log.Info("the backup is good", "backup", report.Backup, "checked", report.Checked)
	return report, nil
}

func (r *Restorer) drill(ctx context.Context) (report agentapi.DrillReport, err error) {
	result, err := r.restore(ctx)
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
	checked, err := r.Engine.Check(ctx, lock, filepath.Join(r.Volume, r.Engine.Layout().Data))
	report.Checked = append(report.Checked, checked...)
	if err != nil {
		return report, fmt.Errorf("look at the restored database: %w", err)
	}
	return report, nil
}

// leave a report as the last words of the container, cut so that it stays what
// can be read.
func leave(path string, report agentapi.DrillReport) error {
	const most = agentapi.TerminationLimit / 4 // what JSON needs for a byte is rarely more than two
	report.Error = cut(report.Error, most)
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
			report.Error = cut(report.Error, len(report.Error)/2)
		}
	}
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// logged tells of the steps in the log: nobody else asks before the end.
type logged struct {
	log  *slog.Logger
	last string
}

func (l *logged) Report(_ context.Context, run Run) {
	if run.Step != l.last {
		l.last = run.Step
		l.log.Info(strings.ToLower(run.Step))
	}
}

func (l *logged) Conclude(context.Context, Run) error { return nil }
