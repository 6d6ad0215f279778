//go:build e2e || soak

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/test/podprocess"
	"github.com/holdfast-db/holdfast/test/waltail"
)

// lostPeriod is what storage loses that had confirmed it.
const lostPeriod = time.Second

// powerLost: all processes of the primary end at once, and its storage loses the last
// second of WAL that it had confirmed. A replica that received it leads, and the former
// primary does not, with less than it had.
func powerLost(f *failover) time.Duration {
	f.runSQL(leading, "checkpoint")
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	position, err := runLocalQuery(f.t.Context(), f.namespace, pod.Name, "app", "select pg_current_wal_flush_lsn()")
	must(f.t, err, "read the position of "+pod.Name)
	time.Sleep(lostPeriod) // what is written meanwhile is lost
	freezePod(f.t, pod, podprocess.All)
	lost, err := waltail.Drop(f.volumePath(pod), before.timeline, position)
	must(f.t, err, "drop the end of the WAL of "+pod.Name)
	must(f.t, podprocess.Kill(podprocess.Proc, string(pod.UID), podprocess.Guard), "kill the processes of "+pod.Name)
	f.t.Logf("%s lost its WAL from %s on, %d bytes with what was allocated", pod.Name, position, lost)
	if next := f.awaitSuccessor(before); next.Name == pod.Name {
		f.t.Errorf("%s leads, which lost confirmed WAL", pod.Name)
	}
	return f.endEvent("power and the last second of WAL lost", since, false)
}

// volumePath is PGDATA of a member on this machine.
func (f *failover) volumePath(pod *corev1.Pod) string {
	f.t.Helper()
	name, err := diskOf(f.t.Context(), f.namespace, pod.Name)
	must(f.t, err, "find the volume of "+pod.Name)
	var volume corev1.PersistentVolume
	must(f.t, env.client.Get(f.t.Context(), types.NamespacedName{Name: name}, &volume), "read volume "+name)
	if volume.Spec.Local == nil {
		must(f.t, errors.New("it is not on this machine"), "volume "+name)
	}
	return filepath.Join(volume.Spec.Local.Path, "pgdata")
}

// fsyncBlocked: writes of the primary's storage wait, and fsync. No row is acknowledged
// meanwhile by a server that another one replaced, and all is well when they go on.
func fsyncBlocked(f *failover, period time.Duration) time.Duration {
	pod, since := f.primaryPod(), f.history.Now()
	inside := f.startWriterInside(pod)
	disk, err := diskOf(f.t.Context(), f.namespace, pod.Name)
	must(f.t, err, "find the disk of "+pod.Name)
	before := f.currentLeadership()
	heal := beginFault(f.t, []string{"disk", "freeze", disk}, []string{"disk", "thaw", disk})
	time.Sleep(period) // the fault itself
	now, err := readLeadership(f.t.Context(), f.namespace, f.name)
	acknowledged, failed := f.w.countWrites(since)
	f.t.Logf("after %s the Lease is %+v (%v), before %+v; %d writes acknowledged, %d failed", period, now, err, before, acknowledged, failed)
	heal()
	inside.stop()
	return f.endEvent(fmt.Sprintf("fsync of the primary blocked for %s", period), since, false)
}
