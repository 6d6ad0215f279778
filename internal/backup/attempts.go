package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/store"
)

// A pod that is believed to be dead may still write: its node is cut off, or
// a client has forced its deletion. So no attempt touches what another one has
// stored before it has a whole backup of its own, and an attempt counts only if
// all it has stored is there after its manifest is. Of two that are sealed, both
// stay: either is whole that is taken for the result.

// ownPrefix is the prefix of this attempt.
func (t *Taker) ownPrefix() string { return t.Task.Prefix + t.Pod + "/" }

// findEarlier looks for an attempt before this one that is complete, and could not
// report: it is this backup.
func (t *Taker) findEarlier(ctx context.Context, source Source, run *v1alpha1.BackupRun) (*v1alpha1.BackupResult, error) {
	all, err := t.store.List(ctx, t.Task.Prefix)
	if err != nil {
		return nil, err
	}
	t.refused = map[string]bool{}
	for _, key := range listManifests(all) {
		m, sum, err := ReadManifest(ctx, t.store, key)
		if err == nil {
			err = t.checkOwner(m)
		}
		if err == nil {
			t.Log.Info("an earlier attempt is complete", "manifest", key)
			_, err = t.verifyStored(ctx, source, strings.TrimSuffix(key, manifestName)+dataPrefix, m, run)
		}
		if err == nil {
			return m.buildResult(key, sum), nil
		}
		if !InVain(err) {
			return nil, err
		}
		t.Log.Warn("an earlier attempt is not what it says", "manifest", key, "error", err.Error())
		t.refused[key] = true
	}
	return nil, nil
}

func listManifests(all []store.Object) (keys []string) {
	for _, o := range all {
		if isManifest(o.Key) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// checkOwner refuses the manifest of another task.
func (t *Taker) checkOwner(m Manifest) error {
	if m.BackupUID != t.Task.UID || m.ClusterUID != t.Task.ClusterUID {
		return &Permanent{fmt.Errorf("it is of the backup %s of the cluster %s", m.BackupUID, m.ClusterUID)}
	}
	return t.checkSystem(m.SystemIdentifier)
}

// sealBackup writes the manifest, the last object of a backup: without it there is
// none. Then what other attempts left goes.
func (t *Taker) sealBackup(ctx context.Context, m Manifest) (*v1alpha1.BackupResult, error) {
	key := t.ownPrefix() + manifestName
	data, err := m.renderJSON()
	if err != nil {
		return nil, err
	}
	if _, err := t.checkWhole(ctx, m); err != nil {
		return nil, err
	}
	if err := t.store.Put(ctx, key, data); err != nil {
		return nil, err
	}
	stored, sum, err := ReadManifest(ctx, t.store, key)
	if err != nil {
		return nil, fmt.Errorf("verify the manifest: %w", err)
	}
	if sum != checksumOf(data) {
		return nil, &Permanent{fmt.Errorf("the manifest %s is not what was written", key)}
	}
	others, err := t.checkWhole(ctx, m)
	if err != nil {
		return nil, errors.Join(err, t.store.Delete(ctx, key))
	}
	if result := t.findSealed(ctx, others); result != nil {
		return result, nil
	}
	for _, o := range others {
		if err := t.store.Delete(ctx, o.Key); err != nil {
			t.Log.Warn("what an earlier attempt left stays", "object", o.Key, "error", err.Error())
		}
	}
	return stored.buildResult(key, sum), nil
}

// checkWhole says whether all parts are there, and what other attempts have stored.
func (t *Taker) checkWhole(ctx context.Context, m Manifest) (others []store.Object, err error) {
	all, err := t.store.List(ctx, t.Task.Prefix)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if !strings.HasPrefix(o.Key, t.ownPrefix()) {
			others = append(others, o)
		}
	}
	if name := m.findMissing(t.ownPrefix()+dataPrefix, all); name != "" {
		return nil, fmt.Errorf("part %s has been removed, or replaced, since it was checked", name)
	}
	return others, nil
}

// findSealed finds the result of another attempt that has sealed its backup meanwhile;
// nil for none. It may have begun to remove this one.
func (t *Taker) findSealed(ctx context.Context, others []store.Object) *v1alpha1.BackupResult {
	for _, key := range listManifests(others) {
		if t.refused[key] {
			continue
		}
		if m, sum, err := ReadManifest(ctx, t.store, key); err == nil && t.checkOwner(m) == nil {
			return m.buildResult(key, sum)
		}
	}
	return nil
}

// removeAttempt removes what this attempt has stored: it is not needed, and takes
// disk space that the next one may need. After the last one no other attempt will.
func (t *Taker) removeAttempt(ctx context.Context, last bool) {
	limit := cleanup
	if last && ctx.Err() == nil {
		limit = removal
	}
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := eraseObjects(removing, t.store, t.ownPrefix()); err != nil {
		t.Log.Error("what this attempt has stored stays", "prefix", t.ownPrefix(), "error", err.Error())
	}
}
