// Package etcd restores etcd from a snapshot, as a new group of one member.
package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/etcd"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Engine is etcd of one version.
type Engine struct {
	Member, PeerURL, Token string
	Version                string
	Programs               process.Programs
	// ClientPort and PeerPort on the loopback interface, where etcd runs once.
	ClientPort, PeerPort int
}

// Ports on the loopback interface of the Job's pod.
const (
	clientPort = 2379
	peerPort   = 2380
)

// New is the engine of the image, in the pod of a Job.
func New(task agentapi.RestoreTask) (restore.Engine, error) {
	if task.PeerURL == "" || task.Token == "" {
		return nil, &backup.Permanent{Err: errors.New("the task names neither the member's address nor its group")}
	}
	version, dir, err := etcd.ImageVersion(context.Background())
	if err != nil {
		return nil, &backup.Permanent{Err: err}
	}
	return &Engine{
		Member: task.Member, PeerURL: task.PeerURL, Token: task.Token, Version: version,
		Programs:   process.Programs{Dir: dir, Processes: process.NewProcesses()},
		ClientPort: clientPort, PeerPort: peerPort,
	}, nil
}

// VolumeLayout implements restore.Engine. Beside its own directory etcd complains of
// any file.
func (e *Engine) VolumeLayout() restore.Layout {
	return restore.Layout{Data: etcd.DataName, Proof: etcd.ProofDir}
}

const (
	snapshotName = "snapshot.db"
	// bump raises the revision, so that none is used twice: clients that have
	// observed later ones than the snapshot's learn that they are compacted.
	bump     = 1_000_000_000
	bumpFlag = "--bump-revision"
	// raftLogSpace is what two files of etcd's Raft log take, and some more.
	raftLogSpace = 144 << 20
)

// CheckFit implements restore.Engine.
func (e *Engine) CheckFit(ctx context.Context, m backup.Manifest) (int64, error) {
	have, known := etcdversion.Parse(m.Version)
	ours, _ := etcdversion.Parse(e.Version)
	switch obstacle, first := etcdversion.FindObstacle(have, ours); {
	case !known:
		return 0, newPermanent("the manifest names an unknown version of etcd: %q", m.Version)
	case obstacle == etcdversion.Older:
		return 0, newPermanent("spec.version: the backup is of etcd %s, which etcd %s does not take over: set it to \"3.%d\" or newer", have, ours, have.Minor)
	case ours.Minor > have.Minor+1:
		return 0, newPermanent("spec.version: the backup is of etcd %s, and etcd %s is more than one minor version ahead: set it to \"3.%d\" first", have, ours, max(first.Minor, have.Minor+1))
	}
	help, err := e.Programs.Run(ctx, "etcdutl", "snapshot", "restore", "--help")
	if err != nil {
		return 0, err
	}
	if !strings.Contains(help, bumpFlag) {
		return 0, newPermanent("spec.version: etcd %s cannot raise the revision of what it restores, and clients would see numbers again that they know: set it to 3.5.10 or later", ours)
	}
	// The snapshot and what is made of it are there at the same time.
	return 2*m.DataSize + raftLogSpace, nil
}

func newPermanent(format string, args ...any) error {
	return &backup.Permanent{Err: fmt.Errorf(format, args...)}
}

// UnpackCopy implements restore.Engine.
func (e *Engine) UnpackCopy(_ context.Context, from io.Reader, dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, snapshotName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}

// EndsBefore implements restore.Engine.
func (e *Engine) EndsBefore(backup.Manifest, v1alpha1.RestoreTarget) bool { return true }

// CheckArchive implements restore.Engine: etcd's Raft log is not archived.
func (e *Engine) CheckArchive(context.Context, *store.Store, backup.Manifest, v1alpha1.RestoreTarget) error {
	return newPermanent("spec.restore.target: etcd keeps no log that could be archived: remove it")
}

// RecoverCopy implements restore.Engine.
func (e *Engine) RecoverCopy(ctx context.Context, job restore.Recovery) (restore.Outcome, error) {
	system, err := e.recoverSnapshot(ctx, job.Lock, job.Manifest, job.Dir)
	return restore.Outcome{SystemIdentifier: system}, err
}

func (e *Engine) recoverSnapshot(ctx context.Context, lock *volumelock.VolumeLock, m backup.Manifest, dir string) (string, error) {
	snapshot, data := filepath.Join(dir, snapshotName), filepath.Join(dir, restore.Recovered)
	revision, err := e.readRevision(ctx, snapshot)
	if err != nil {
		return "", err
	}
	if m.End != strconv.FormatInt(revision, 10) {
		return "", newPermanent("the snapshot goes to revision %d, and the manifest says %s", revision, m.End)
	}
	_, err = e.runTool(ctx, "snapshot", "restore", snapshot, "--data-dir="+data, "--name="+e.Member,
		"--initial-cluster="+e.Member+"="+e.PeerURL, "--initial-advertise-peer-urls="+e.PeerURL, "--initial-cluster-token="+e.Token,
		bumpFlag+"="+strconv.Itoa(bump), "--mark-compacted")
	if err != nil {
		return "", err
	}
	if err := os.Remove(snapshot); err != nil {
		return "", err
	}
	standalone := &etcd.Standalone{
		Programs: e.Programs, Lock: lock, Data: data, Member: e.Member, PeerURL: e.PeerURL, ClientPort: e.ClientPort, PeerPort: e.PeerPort,
	}
	found, err := standalone.Inspect(ctx)
	if err != nil {
		return "", err
	}
	if want := revision + bump; found.Revision < want || found.Members != 1 || found.Corrupt {
		return "", newPermanent("etcd started on the restored data has %d members and the revision %d, of 1 and %d; corrupt: %t", found.Members, found.Revision, want, found.Corrupt)
	}
	return found.Cluster, nil
}

// readRevision reads the revision of a snapshot, by etcd's own program, which reads
// all of it.
func (e *Engine) readRevision(ctx context.Context, snapshot string) (int64, error) {
	out, err := e.runTool(ctx, "snapshot", "status", snapshot, "--write-out=json")
	if err != nil {
		return 0, err
	}
	var status struct {
		Revision int64 `json:"revision"`
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return 0, newPermanent("etcdutl says of the snapshot: %q", out)
	}
	return status.Revision, nil
}

// runTool runs etcdutl. What it refuses it will refuse again, but for one that was
// killed.
func (e *Engine) runTool(ctx context.Context, args ...string) (string, error) {
	out, err := e.Programs.Run(ctx, "etcdutl", args...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() && ctx.Err() == nil {
		return out, newPermanent("etcd refuses the snapshot: %w", err)
	}
	return out, err
}

// CheckData implements restore.Engine: etcd reads everything, and once it is stopped
// its own tool reads the pages of the file.
func (e *Engine) CheckData(ctx context.Context, lock *volumelock.VolumeLock, data string) ([]string, error) {
	standalone := &etcd.Standalone{
		Programs: e.Programs, Lock: lock, Data: data, Member: e.Member, PeerURL: e.PeerURL, ClientPort: e.ClientPort, PeerPort: e.PeerPort,
	}
	found, err := standalone.ReadAll(ctx)
	if err != nil {
		return nil, err
	}
	if found.Members != 1 || found.Corrupt {
		return nil, newPermanent("etcd started on the restored data has %d members, of 1; corrupt: %t", found.Members, found.Corrupt)
	}
	revision, err := e.readRevision(ctx, filepath.Join(data, "member", "snap", "db"))
	if err != nil {
		return nil, err
	}
	if revision > found.Revision {
		return nil, newPermanent("etcd started on the restored data says revision %d, and its file has %d", found.Revision, revision)
	}
	if found.Closed {
		return []string{"etcd leads as a group of one", "its file is sound", "its keys were not read: its authentication is on"}, nil
	}
	size := resource.NewQuantity(found.Size>>10<<10, resource.BinarySI)
	return []string{
		"etcd leads as a group of one", "its file is sound",
		fmt.Sprintf("%d keys were read with their values, %s in all; the hash of all revisions is %08x", found.Keys, size, found.Hash),
	}, nil
}
