package restore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// requestHash stands for what the cluster asks for, whatever that is found to be:
// what was chosen for one request is not what another one means.
func requestHash(t agentapi.RestoreTask) string {
	all := []string{t.Store.URL, t.Store.Volume, t.Store.Endpoint, t.Store.Region, t.Prefix, t.Backup, t.Manifest}
	if t.Target != nil {
		all = append(all, describeTarget(t.Target))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", all))
	return hex.EncodeToString(sum[:16])
}

// wantsSame says whether the task still means a backup that was chosen when another
// attempt asked. A manifest's checksum stands for all that is in the backup,
// wherever it lies.
func (r *Restorer) wantsSame(before, manifest, checksum, target string) bool {
	t := r.Task
	return before == requestHash(t) || t.Manifest != "" && t.Manifest == manifest && t.Checksum != "" && t.Checksum == checksum && target == describeTarget(t.Target)
}

// describeRequest says in words what is asked for.
func (r *Restorer) describeRequest() (text string) {
	switch t := r.Task; {
	case t.Manifest != "":
		text = t.Manifest
	case t.Backup != "":
		text = fmt.Sprintf("the backup %s below %s", t.Backup, t.Prefix)
	default:
		text = "the newest backup below " + t.Prefix
	}
	if r.Task.Target != nil {
		text += " to " + r.Task.Target.String()
	}
	return text
}

// resolveIntent says what the volume is restored from, compared with the cluster: it
// may have changed since an earlier attempt.
func (r *Restorer) resolveIntent(ctx context.Context, s *store.Store, before *intent) (intent, backup.Manifest, error) {
	at, m, err := r.chooseBackup(ctx, s, before)
	if err == nil {
		err = r.checkFit(ctx, m)
	}
	if err == nil {
		err = r.checkTarget(ctx, s, m)
	}
	return at, m, err
}

// chooseBackup chooses a backup. What an earlier attempt has chosen counts, as long as the
// cluster asks for the same, and it is there where it was not asked for by its
// manifest.
func (r *Restorer) chooseBackup(ctx context.Context, s *store.Store, before *intent) (intent, backup.Manifest, error) {
	if before != nil && r.wantsSame(before.Asked, before.Manifest, before.Checksum, before.Target) {
		m, err := readManifest(ctx, s, before.Manifest, before.Checksum)
		if r.Task.Manifest != "" || !store.NotFound(err) {
			return *before, m, err
		}
		r.Log.Info("the backup that was chosen has been removed", "manifest", before.Manifest)
	}
	key, named := r.Task.Manifest, r.Task.Manifest != ""
	if !named {
		var err error
		if key, err = r.findBackup(ctx, s); err != nil {
			return intent{}, backup.Manifest{}, err
		}
	}
	m, sum, err := backup.ReadManifest(ctx, s, key)
	if want := r.Task.Checksum; err == nil && named && want != "" && sum != want {
		err = newPermanent("the manifest %s has the checksum %s, and the Backup says %s: another client has changed it", key, sum, want)
	}
	return intent{ClusterUID: r.Task.UID, Asked: requestHash(r.Task), Manifest: key, Checksum: sum, Target: describeTarget(r.Task.Target)}, m, err
}

func readManifest(ctx context.Context, s *store.Store, key, checksum string) (backup.Manifest, error) {
	m, sum, err := backup.ReadManifest(ctx, s, key)
	if err == nil && sum != checksum {
		err = newPermanent("the manifest %s has changed since the restore was begun: it had the checksum %s, and has %s", key, checksum, sum)
	}
	return m, err
}

// unlessGone is what a restore failed with whose backup may have been removed
// meanwhile. Where it was not asked for by its manifest, the next attempt looks
// for another one.
func (r *Restorer) unlessGone(ctx context.Context, s *store.Store, manifest string, failed error) error {
	if r.Task.Manifest != "" || !backup.InVain(failed) {
		return failed
	}
	if _, err := s.Get(ctx, manifest); !store.NotFound(err) {
		return failed
	}
	return fmt.Errorf("the backup %s was removed while it was restored: %s", manifest, failed.Error())
}

// checkFit compares a backup with the cluster.
func (r *Restorer) checkFit(ctx context.Context, m backup.Manifest) error {
	if m.Kind != r.Task.Kind {
		return newPermanent("spec.restore: the backup is of a %s, and this is a %s", m.Kind, r.Task.Kind)
	}
	need, err := r.Engine.CheckFit(ctx, m)
	if err != nil {
		return err
	}
	if r.Task.VolumeSize > 0 && need > r.Task.VolumeSize {
		return newPermanent("spec.storage.size: the backup needs a volume of %s, and the members' have %s", formatBytes(need), formatBytes(r.Task.VolumeSize))
	}
	space := diskspace.SpaceOf(r.Volume)
	if r.space != nil {
		space = r.space()
	}
	if !space.Fits(need) {
		return newPermanent("spec.storage.size: the backup needs %s, and the volume has %s free", formatBytes(need), formatBytes(space.Free))
	}
	return nil
}

// formatBytes writes a number of bytes in round numbers.
func formatBytes(n int64) string {
	const unit = 1 << 20
	return resource.NewQuantity((n+unit-1)/unit*unit, resource.BinarySI).String()
}

// found is a manifest in a store.
type found struct {
	key     string
	uid     string // of the cluster
	written time.Time
	backup.Manifest
	// why the backup cannot be restored.
	why error
}

// findNewest looks below a cluster's prefix for the newest backup, or the newest of a
// name. One that cannot be restored is never taken for none where it is the
// newest.
func findNewest(ctx context.Context, s *store.Store, prefix, name string) (string, error) {
	all, err := listOneCluster(ctx, s, prefix)
	if err != nil {
		return "", err
	}
	readable, broken, err := readManifests(ctx, s, all, name)
	if err != nil {
		return "", err
	}
	newest, torn, err := newestOf(ctx, s, readable)
	switch {
	case err != nil:
		return "", err
	case newest == nil && torn != nil:
		return "", torn.why
	case newest == nil && broken != nil:
		return "", broken.why
	case newest == nil:
		return "", newPermanent("spec.restore.source: there is no complete %s below %s", strings.TrimSpace("backup "+name), prefix)
	case torn != nil && torn.BackupUID != newest.BackupUID:
		return "", newPermanent("spec.restore.source.backup: the newest backup, %s, is not whole, name another one: %w", torn.Backup, torn.why)
	case name == "" && broken != nil && broken.written.After(newest.written):
		return "", newPermanent("spec.restore.source.backup: the newest backup cannot be read, name another one: %w", broken.why)
	}
	return newest.key, nil
}

// listOneCluster lists the manifests below a prefix, of one cluster.
func listOneCluster(ctx context.Context, s *store.Store, prefix string) ([]found, error) {
	all, err := listManifests(ctx, s, prefix)
	if err != nil {
		return nil, err
	}
	if clusters := clusterUIDs(all); len(clusters) > 1 {
		return nil, newPermanent("spec.restore.source.clusterUID: there are backups of several clusters below %s, say which: %s", prefix, strings.Join(clusters, ", "))
	}
	return all, nil
}

// readManifests reads manifests, newest first, of a name where there is one, and say which is
// the newest of those that cannot be read.
func readManifests(ctx context.Context, s *store.Store, all []found, name string) (readable []found, broken *found, err error) {
	for _, f := range all {
		f.Manifest, _, f.why = backup.ReadManifest(ctx, s, f.key)
		switch {
		case store.NotFound(f.why): // removed a moment ago
		case f.why != nil && !backup.InVain(f.why):
			return nil, nil, f.why
		case f.why != nil:
			if broken == nil || f.written.After(broken.written) {
				broken = &f
			}
		case name == "" || f.Backup == name:
			readable = append(readable, f)
		}
	}
	slices.SortStableFunc(readable, func(a, b found) int { return b.Started.Compare(a.Started) })
	return readable, broken, nil
}

// newestOf those that are sorted is the first whose parts are all there; torn is
// the first before it that lacks some. Of two attempts of one backup, one may
// have removed the other's.
func newestOf(ctx context.Context, s *store.Store, sorted []found) (newest, torn *found, err error) {
	for _, f := range sorted {
		f.why = backup.CheckWhole(ctx, s, f.key, f.Manifest)
		switch {
		case f.why == nil:
			return &f, torn, nil
		case !backup.InVain(f.why):
			return nil, nil, f.why
		case torn == nil:
			torn = &f
		}
	}
	return nil, torn, nil
}

// listManifests lists those below the prefix of a cluster, in
// <namespace>/<cluster>/<uid>/<backup>-<uid>/<attempt>/.
func listManifests(ctx context.Context, s *store.Store, prefix string) ([]found, error) {
	const cluster, attempt = 3, 5
	if !strings.HasSuffix(prefix, "/") {
		return nil, newPermanent("the task has no prefix: %q", prefix)
	}
	dirs := []string{prefix}
	for depth := strings.Count(prefix, "/"); depth < attempt; depth++ {
		var below []string
		for _, dir := range dirs {
			names, err := s.ListDirs(ctx, dir)
			if err != nil {
				return nil, fmt.Errorf("look for backups: %w", err)
			}
			below = append(below, names...)
		}
		dirs = below
	}
	var list []found
	for _, dir := range dirs {
		objects, err := s.List(ctx, dir+backup.ManifestName)
		if err != nil {
			return nil, fmt.Errorf("look for backups: %w", err)
		}
		for _, o := range objects {
			list = append(list, found{key: o.Key, uid: strings.Split(dir, "/")[cluster-1], written: o.Time})
		}
	}
	return list, nil
}

func clusterUIDs(list []found) []string {
	var uids []string
	for _, f := range list {
		uids = append(uids, f.uid)
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}
