//go:build etcd

package etcd

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Data that was restored for a new cluster founds its group, though an earlier
// cluster of the name has left its membership record, and is recorded before it
// serves; others join it.
func TestRealRestored(t *testing.T) {
	w := newWorld(t, 2)
	volume := t.TempDir()
	old, restored := restoredSnapshot(t, w, volume)
	w.configure(func(c *agentapi.ClusterConfig) { c.UID, c.SystemIdentifier = "u2", "" })

	before := w.start(0, volume)
	before.untilHeld(agentapi.HoldSystemIdentifier) // without the proof it would be any data
	before.stop()
	if err := os.WriteFile(filepath.Join(volume, dataName, ProofDir, agent.RestoredFile), []byte(`{"clusterUID":"u2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.configure(func(c *agentapi.ClusterConfig) { c.SystemIdentifier = restored })
	founder := w.start(0, volume)
	status := founder.untilState(agentapi.StateRunning)
	if status.SystemIdentifier != restored || restored == old {
		t.Errorf("serves %s after %s, restored was %s", status.SystemIdentifier, old, restored)
	}
	record, err := founder.guard.membership.ReadRecord(context.Background())
	if err != nil || record.Cluster != "u2" || record.SystemIdentifier != restored || len(record.Starts) != 1 {
		t.Errorf("the record says %+v, %v", record, err)
	}
	c := w.dial(0)
	if got := get(t, c, "key"); got != "value" {
		t.Errorf("key is %q", got)
	}
	w.grow(c, 1, t.TempDir())
}

// A group whose own authentication is on answers its status to no client without a name
// in it. It is restored all the same.
func TestRealRestoredWithAuthentication(t *testing.T) {
	w := newWorld(t, 1)
	old, restored := restoredSnapshot(t, w, t.TempDir(), func(c *clientv3.Client) {
		ctx := w.context()
		_, errUser := c.UserAdd(ctx, "root", "secret")
		_, errName := c.UserAddWithOptions(ctx, agentapi.MemberName, "", &clientv3.UserAddOptions{NoPassword: true})
		_, errRole := c.RoleAdd(ctx, "root")
		_, errGrant := c.UserGrantRole(ctx, "root", "root")
		_, errName2 := c.UserGrantRole(ctx, agentapi.MemberName, "root")
		_, errOn := c.AuthEnable(ctx)
		if err := errors.Join(errUser, errName, errRole, errGrant, errName2, errOn); err != nil {
			t.Fatal(err)
		}
	})
	if old == restored {
		t.Errorf("it is still the group %s", old)
	}
}

// restoredSnapshot leaves the restored snapshot of a cluster that has ended on a
// volume, and returns the IDs of both.
func restoredSnapshot(t *testing.T, w *world, volume string, first ...func(*clientv3.Client)) (old, restored string) {
	t.Helper()
	source := w.seed(t.TempDir())
	c := w.dial(0)
	put(t, c, "key", "value")
	for _, step := range first {
		step(c)
	}
	stream, err := c.Snapshot(w.context())
	if err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	text, err := io.ReadAll(stream)
	if err == nil {
		err = os.WriteFile(snapshot, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	old = source.Store.Get().SystemIdentifier
	source.stop()
	data := filepath.Join(volume, dataName)
	programs := process.Programs{Dir: w.bin, Processes: process.NewProcesses()}
	_, err = programs.Run(context.Background(), "etcdutl", "snapshot", "restore", snapshot, "--data-dir="+data, "--name=orders-0",
		"--initial-cluster=orders-0="+w.peerURL("orders-0"), "--initial-advertise-peer-urls="+w.peerURL("orders-0"), "--initial-cluster-token=u2")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := volumelock.LockVolume(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	standalone := &Standalone{Programs: programs, Lock: lock, Data: data, Member: "orders-0", PeerURL: w.peerURL("orders-0"), ClientPort: freePort(t), PeerPort: freePort(t)}
	found, err := standalone.Inspect(context.Background())
	if err != nil || found.Members != 1 || found.Revision < 2 || found.Corrupt {
		t.Fatalf("%+v, %v", found, err)
	}
	return old, found.Cluster
}
