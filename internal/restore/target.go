package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// describeTarget is a target in words; empty for the end of a backup.
func describeTarget(t *v1alpha1.RestoreTarget) string {
	if t == nil {
		return ""
	}
	return t.String()
}

// findBackup finds the backup that the task asks for.
func (r *Restorer) findBackup(ctx context.Context, s *store.Store) (string, error) {
	t := r.Task
	if t.Target == nil {
		return findNewest(ctx, s, t.Prefix, t.Backup)
	}
	all, err := listOneCluster(ctx, s, t.Prefix)
	if err != nil {
		return "", err
	}
	readable, broken, err := readManifests(ctx, s, all, t.Backup)
	if err != nil {
		return "", err
	}
	if len(readable) == 0 { // as without a target
		return findNewest(ctx, s, t.Prefix, t.Backup)
	}
	// Of all those before the target, the WAL leads to the same: one
	// that is not whole may be skipped.
	newest, torn, err := newestOf(ctx, s, r.skipLeft(ctx, s, r.filterBefore(readable)))
	switch {
	case err != nil:
		return "", err
	case newest == nil && torn != nil:
		return "", torn.why
	case newest == nil:
		return "", r.tooEarly(ctx, s, readable[0].Manifest)
	}
	for _, f := range []*found{broken, torn} {
		if f != nil {
			r.Log.Warn("a backup is skipped", "manifest", f.key, "error", f.why.Error())
		}
	}
	return newest.key, nil
}

// filterBefore keeps those that end before the task's target.
func (r *Restorer) filterBefore(all []found) (before []found) {
	for _, f := range all {
		if r.Engine.EndsBefore(f.Manifest, *r.Task.Target) {
			before = append(before, f)
		}
	}
	return before
}

// checkTarget says why the WAL beside a backup does not lead to the task's target, as
// far as that is known before it is read.
func (r *Restorer) checkTarget(ctx context.Context, s *store.Store, m backup.Manifest) error {
	switch {
	case r.Task.Target == nil:
		return nil
	case !r.Engine.EndsBefore(m, *r.Task.Target):
		return r.tooEarly(ctx, s, m)
	}
	return r.Engine.CheckArchive(ctx, s, m, *r.Task.Target)
}

// skipLeft skips the newest backups of a branch that the cluster has left,
// where an older one leads to what it went on with.
func (r *Restorer) skipLeft(ctx context.Context, s *store.Store, all []found) []found {
	for i, f := range all {
		err := r.Engine.CheckArchive(ctx, s, f.Manifest, *r.Task.Target)
		if left := (*Left)(nil); !errors.As(err, &left) {
			return all[i:] // what else is wrong is said of the one that is chosen
		}
		r.Log.Warn("a backup is skipped", "manifest", f.key, "error", err.Error())
	}
	return all
}

// tooEarly is what a restore fails with whose target lies before the end of a
// backup.
func (r *Restorer) tooEarly(ctx context.Context, s *store.Store, m backup.Manifest) error {
	says := fmt.Sprintf("spec.restore.target: %s lies before the end of the backup %s, which is %s, at %s", r.Task.Target, m.Backup, m.End, m.EndedBy().Format(time.RFC3339))
	all, err := r.listOthers(ctx, s, m)
	if err != nil {
		return err
	}
	if fit := r.filterBefore(all); len(fit) > 0 {
		return newPermanent("%s: name another one that ends before it: %s", says, listNames(fit))
	}
	if len(all) > 0 {
		oldest := all[len(all)-1]
		if oldest.EndedBy().Before(m.EndedBy()) {
			m = oldest.Manifest
		}
	}
	return newPermanent("%s: no backup ends before it, and what can be brought back begins with the end of %s, at %s", says, m.Backup, m.EndedBy().Format(time.RFC3339))
}

// suggestOther says which other backup to name where a recovery has missed its
// target.
func (r *Restorer) suggestOther(ctx context.Context, s *store.Store, m backup.Manifest, failed error) error {
	missed := (*Missed)(nil)
	if !errors.As(failed, &missed) || !missed.Early && r.Task.Target.Name == "" {
		return failed
	}
	all, err := r.listOthers(ctx, s, m)
	if err != nil {
		return errors.Join(failed, err)
	}
	var older []found
	for _, f := range all {
		if f.EndedBy().Before(m.EndedBy()) {
			older = append(older, f)
		}
	}
	if len(older) == 0 {
		return fmt.Errorf("%w; there is no older backup of this cluster", failed)
	}
	return fmt.Errorf("%w; if it lies before that, name an older backup: %s", failed, listNames(older))
}

// listOthers lists the backups of the same cluster in the same store, the newest
// first.
func (r *Restorer) listOthers(ctx context.Context, s *store.Store, m backup.Manifest) (others []found, err error) {
	all, err := listManifests(ctx, s, fmt.Sprintf("%s/%s/%s/", m.Namespace, m.Cluster, m.ClusterUID))
	if err != nil {
		return nil, err
	}
	readable, _, err := readManifests(ctx, s, all, "")
	for _, f := range readable {
		if f.BackupUID != m.BackupUID && f.Kind == m.Kind {
			others = append(others, f)
		}
	}
	return others, err
}

// listNames joins the names of a few backups.
func listNames(all []found) string {
	const few = 3
	var names []string
	for _, f := range all[:min(few, len(all))] {
		names = append(names, fmt.Sprintf("%s (%s)", f.Backup, f.EndedBy().Format(time.RFC3339)))
	}
	return strings.Join(names, ", ")
}
