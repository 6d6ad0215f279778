//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// noGroup is how long a group is watched that may not start.
const noGroup = 30 * time.Second

// outageOfAll is longer than a member waits for a majority before it leaves the group.
const outageOfAll = 30 * time.Second

// volumeLostInOutage: all members are cut off from each other, and the volume of one is
// lost meanwhile. It may have the latest writes: the others do not start the group by
// themselves, and serve once a person requests it.
func volumeLostInOutage(f *trial) {
	since, lost := f.history.Now(), f.chooseReplica()
	var heals []func()
	for _, pod := range f.c.listPods() {
		heals = append(heals, cutPod(f.c.t, &pod, bothWays))
	}
	f.c.loseVolumes(f.c.ordinalOf(lost.Name))
	f.c.awaitNewPod(lost)
	time.Sleep(outageOfAll - (f.history.Now() - since)) // the fault itself
	for _, heal := range heals {
		heal()
	}
	f.c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum, lost.Name)
	f.expectNoWrites(noGroup)
	for n := range f.c.listPods() {
		if f.c.podName(n) == lost.Name {
			continue // it has no server
		}
		if online, err := listOnline(f.c.t.Context(), f.c.namespace, f.c.podName(n)); err != nil || len(online) > 0 {
			f.c.t.Errorf("%s is in a group of %v: %v", f.c.podName(n), online, err)
		}
	}
	f.c.waitStalled(v1alpha1.ReasonQuorumLost, recoverQuorum, lost.Name)
	id := fmt.Sprintf("e2e-%d", f.history.Now())
	must(f.c.t, f.c.annotate(f.c.t.Context(), recoverQuorum, id), "request to go on")
	f.c.waitFor(failoverTimeout, "the request has a result", func(obj v1alpha1.Cluster) error {
		for _, r := range obj.CommonStatus().Requests {
			if r.ID == id && r.Result != "" {
				return holdsAll(r.Result, "went on with its data")
			}
		}
		return fmt.Errorf("the requests are %+v", obj.CommonStatus().Requests)
	})
	f.endEvent("volume lost in an outage of all, and the request", since, true)
}

// localRow is one that a person writes to a replica.
const localRow = "client = 'local' and number = 1"

// localWrite: a person takes a replica out of the group and writes to it. It is held, also
// by its next pod, and not copied over: its data has what no other member has. When the
// person gives that up with its volume, it is copied.
func localWrite(f *trial) {
	held := f.chooseReplica()
	n := f.c.ordinalOf(held.Name)
	server, since := f.c.serverOf(n), f.history.Now()
	f.c.runMySQL(n, "stop group_replication; set global super_read_only = off; "+
		"insert into app.failover_rows (client, number) values ('local', 1); set global super_read_only = on")
	f.awaitHeld(held.Name, server)
	deletePod(f.c.t, held, false)
	f.c.awaitNewPod(held)
	time.Sleep(settlePeriod) // the observation itself: its agent has the choice again
	f.awaitHeld(held.Name, server)
	if _, failed := f.w.countWrites(since); failed > 0 {
		f.c.t.Errorf("%d writes failed, the last error is %v", failed, f.w.readError())
	}
	f.c.loseVolumes(n)
	f.c.awaitOtherServer(n, server)
	f.endEvent("local write on a replica, and its volume given up", since, true)
	if rows := f.c.runMySQL(n, "select count(*) from app.failover_rows where "+localRow); rows != "0" {
		f.c.t.Errorf("%s has the row that was given up", held.Name)
	}
}

// awaitHeld waits until a member is held for data that the group does not have, and has it
// on the same server as before, outside of the group.
func (f *trial) awaitHeld(pod, server string) {
	f.c.t.Helper()
	f.c.waitStalled(v1alpha1.ReasonDataDiverged, pod)
	const query = "select @@server_uuid, (select count(*) from app.failover_rows where " + localRow + "), " +
		"(select count(*) from performance_schema.replication_group_members where member_state = 'ONLINE')"
	eventually(f.c.t, readyTimeout, pod+" has its own data", func(ctx context.Context) error {
		have, err := queryMySQL(ctx, f.c.namespace, pod, query)
		if want := server + "\t1\t0"; err == nil && have != want {
			err = fmt.Errorf("server, row and members online are %q, want %q", have, want)
		}
		return err
	})
	f.w.goesOn(f.c.t)
}

// keptAside is where an agent keeps data that a copy has replaced.
const keptAside = agentapi.DataDir + "/mysql.old"

// binlogsPurged: a replica is away for longer than the binlogs of the others last. It is
// copied again, and what it had is kept beside the copy until that has proved itself.
func binlogsPurged(f *trial) {
	away := f.chooseReplica()
	n := f.c.ordinalOf(away.Name)
	server, since := f.c.serverOf(n), f.history.Now()
	heal := cutPod(f.c.t, away, bothWays)
	f.awaitDegraded(away.Name)
	f.w.goesOn(f.c.t)
	for _, pod := range f.c.listPods() {
		if pod.UID != away.UID {
			f.purgeBinlogs(&pod)
		}
	}
	heal()
	f.c.awaitOtherServer(n, server)
	if _, err := runCommand(inContainer(f.c.t.Context(), mysql.engine), f.c.namespace, away.Name, "", "test", "-d", keptAside); err != nil {
		f.c.t.Errorf("what %s had is not kept: %v", away.Name, err)
	}
	f.endEvent("binlogs purged while a replica was away", since, true)
	eventually(f.c.t, readyTimeout, "what "+away.Name+" had is removed", func(ctx context.Context) error {
		_, err := runCommand(inContainer(ctx, mysql.engine), f.c.namespace, away.Name, "", "test", "!", "-e", keptAside)
		return err
	})
}

// purgeBinlogs removes a member's binlogs, but for the newest one, which is empty.
func (f *trial) purgeBinlogs(pod *corev1.Pod) {
	f.c.t.Helper()
	n := f.c.ordinalOf(pod.Name)
	f.c.runMySQL(n, "flush binary logs")
	file, _, _ := strings.Cut(f.c.runMySQL(n, "show binary log status"), "\t")
	f.c.runMySQL(n, "purge binary logs to '"+file+"'")
	if purged := f.c.runMySQL(n, "select @@global.gtid_purged <> ''"); purged != "1" {
		f.c.t.Fatalf("%s has all its binlogs", pod.Name)
	}
}
