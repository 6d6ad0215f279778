//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/test/podprocess"
)

// Names of events that only MySQL's table has.
const (
	eventServerKilled     = "mysqld of the primary killed"
	eventTwoServersKilled = "mysqld of two members killed, that of the primary too"
	eventAllServersKilled = "mysqld of all members killed"
	eventAllForced        = "all pods deleted by force"
	eventOtherTag         = "rolling upgrade to the same build by another tag"
	eventVolumeLost       = "claim and pod of a replica deleted, with 1 GiB"
)

// mysqlTargets are what is wanted of MySQL by event.
var mysqlTargets = map[string]string{
	"created with 3 members": "≤ 25 s until all members serve",
	"1 → 3 members":          "≤ 20 s until all members serve",
	eventSwitchover:          "≤ 1 s",
	eventPodDeleted:          "≤ 2 s",
	eventDrained:             "≤ 2 s",
	eventRollingRestart:      "≤ 2 s",
	eventMinorUpgrade:        "≤ 2 s",
	eventOtherTag:            "≤ 2 s",
	eventServerKilled:        "≤ 10 s",
	eventNodeCut:             "≤ 12 s, nothing acknowledged inside",
	eventTwoServersKilled:    "≤ 20 s",
	eventAllServersKilled:    "≤ 30 s",
	eventAPIStopped:          "no failed write",
	eventVolumeLost:          "≤ 45 s until all members serve",
}

// Times for which a replica reaches nothing: longer than a group waits for a member, and
// longer than an operator may wait before it replaces what it takes for lost.
const (
	replicaAway     = 30 * time.Second
	replicaLongAway = 10 * time.Minute
)

// mysqlEvents are the rows of MySQL's table: those that need the operator, and the others,
// which happen with it and without it.
func mysqlEvents() []measuredEvent {
	events := []measuredEvent{
		{name: "Switchover", run: switchover},
		{name: "NodeDrained", run: nodeDrained},
		{name: "RollingRestart", run: func(f *trial) time.Duration { return rollingRestart(f, "innodb_purge_threads", 2) }},
		{name: "MinorUpgrade", run: upgradeMySQL},
		{name: "Scaled", run: func(f *trial) time.Duration { return scaled(f, 3, 5, 3, 1) }, members: 1, spec: []string{"deletionPolicy: Delete"}},
		{name: "VolumeLost", run: volumeLost, spec: []string{"storage: {size: 6Gi}"}},
		{name: "PrimaryVolumeLost", run: emptyVolume},
	}
	for _, event := range []measuredEvent{
		{name: "PodDeleted", run: podDeleted},
		{name: "PodForced", run: podForced},
		{name: "ServerKilled", run: primaryServerKilled, apart: crashesApart},
		{name: "NodeCutOff", run: nodeCutOff},
		{name: "TwoServersKilled", run: func(f *trial) time.Duration { return serversKilled(f, eventTwoServersKilled, 2) }, apart: crashesApart},
		{name: "AllServersKilled", run: func(f *trial) time.Duration { return serversKilled(f, eventAllServersKilled, failoverMembers) }, apart: crashesApart},
		{name: "AllPodsForced", run: allPodsForced},
		{name: "APIServerStopped", run: apiServerStopped},
		{name: "ReplicaCutOff", run: func(f *trial) time.Duration { return replicaCutOff(f, replicaAway) }},
		{name: "ReplicaLongCutOff", run: func(f *trial) time.Duration { return replicaCutOff(f, replicaLongAway) }, once: true},
	} {
		events = append(events, event)
		event.name, event.run = event.name+"OperatorAway", whileOperatorAway(event.run)
		events = append(events, event)
	}
	return events
}

// measureMySQLFailovers has each event happen so often, and logs the table.
func measureMySQLFailovers(t *testing.T, runs int, events []measuredEvent) {
	t.Helper()
	measured := measureEvents(t, runs, events, func(t *testing.T, event measuredEvent) *trial {
		members := event.members
		if members == 0 {
			members = failoverMembers
		}
		return newMySQLTrial(t, members, event.spec...)
	})
	t.Log(formatMeasurements(measured, mysqlTargets))
}

// primaryServerKilled: the group expels the member, and another one leads. Nothing is
// lost: a majority has what was acknowledged.
func primaryServerKilled(f *trial) time.Duration {
	pod, before, since := f.leadingPod(), f.currentTerm(), f.history.Now()
	killInPod(f.c.t, pod, podprocess.Postmaster)
	f.awaitSuccessor(before)
	return f.endEvent(eventServerKilled, since, true)
}

// serversKilled: the servers of so many members end at the same time, that of the primary
// first. The group has no majority any more, and starts again with all that was on their
// disks.
func serversKilled(f *trial, event string, count int) time.Duration {
	primary, since := f.leadingPod(), f.history.Now()
	killed := []corev1.Pod{*primary}
	for _, pod := range f.c.listPods() {
		if pod.UID != primary.UID && len(killed) < count {
			killed = append(killed, pod)
		}
	}
	for i := range killed {
		killInPod(f.c.t, &killed[i], podprocess.Postmaster)
	}
	return f.endEvent(event, since, true)
}

// allPodsForced: all pods are deleted by force, so that no agent remembers anything but
// what is on its volume.
func allPodsForced(f *trial) time.Duration {
	pods, since := f.c.listPods(), f.history.Now()
	for i := range pods {
		deletePod(f.c.t, &pods[i], true)
	}
	for i := range pods {
		f.c.awaitNewPod(&pods[i])
	}
	return f.endEvent(eventAllForced, since, true)
}

// replicaCutOff: a replica reaches nothing for a time, and then comes back. The primary
// stays, and no pod is replaced.
func replicaCutOff(f *trial, period time.Duration) time.Duration {
	replica, before, pods := f.chooseReplica(), f.currentTerm(), f.podUIDs()
	since := f.history.Now()
	heal := cutPod(f.c.t, replica, bothWays)
	if f.startOperator == nil {
		f.awaitDegraded(replica.Name)
	}
	time.Sleep(period - (f.history.Now() - since)) // the fault itself
	f.w.goesOn(f.c.t)
	heal()
	gap := f.endEvent(fmt.Sprintf("a replica cut off for %s", period), since, true)
	if now := f.currentTerm(); now != before {
		f.c.t.Errorf("%s leads, before %s", now.holder, before.holder)
	}
	for uid, name := range pods {
		if f.podUIDs()[uid] == "" {
			f.c.t.Errorf("pod %s was replaced", name)
		}
	}
	return gap
}

// podUIDs are the members' pods, by UID.
func (f *trial) podUIDs() map[types.UID]string {
	f.c.t.Helper()
	names := map[types.UID]string{}
	for _, pod := range f.c.listPods() {
		names[pod.UID] = pod.Name
	}
	return names
}

// upgradeMySQL goes to another minor version, and back. Where the nodes have a single one,
// it goes to the same build by another tag: every pod is replaced all the same.
func upgradeMySQL(f *trial) time.Duration {
	have := needImages(f.c.t, mysql.engine, mysql.line, 1)
	event, older, newer := eventOtherTag, mysql.line, have[0]
	if len(have) > 1 {
		event, older, newer = eventMinorUpgrade, have[0], have[len(have)-1]
	}
	declared, _, err := unstructured.NestedString(unstructuredOf(f.c.t, f.c.getCluster()).Object, "spec", "version")
	must(f.c.t, err, "read spec.version")
	next := older
	if declared == older {
		next = newer
	}
	pods, since := f.podUIDs(), f.history.Now()
	f.c.changeSpec(fmt.Sprintf("version: %q", next))
	f.c.waitReady()
	for uid, name := range f.podUIDs() {
		if pods[uid] != "" {
			f.c.t.Errorf("from version %q to %q: %s was not replaced", declared, next, name)
		}
	}
	return f.endEvent(event, since, true)
}

// scaled goes to these numbers of members, one after the other, and notes each. Where the
// primary has to go, another member leads first. Volumes of members that are scaled away
// go, so that the next ones are copied.
func scaled(f *trial, steps ...int) (longest time.Duration) {
	for _, members := range steps {
		before := len(f.c.listPods())
		if members < before {
			f.leadBy(before - 1)
		}
		since := f.history.Now()
		f.c.scaleTo(int32(members))
		eventually(f.c.t, readyTimeout, fmt.Sprintf("there are %d members", members), func(ctx context.Context) error {
			pods, err := memberPods(ctx, f.c.namespace, f.c.name)
			if err == nil && len(pods) != members {
				err = fmt.Errorf("there are %d pods", len(pods))
			}
			return err
		})
		longest = max(longest, f.endEvent(fmt.Sprintf("%d → %d members", before, members), since, true))
		for n := members; n < before; n++ {
			eventually(f.c.t, goneTimeout, "the former member's volume goes", func(ctx context.Context) error {
				return checkGone(env.client.Get(ctx, types.NamespacedName{Namespace: f.c.namespace, Name: f.c.volumeName(n)}, &corev1.PersistentVolumeClaim{}))
			})
		}
	}
	return longest
}

// volumeLost: the claim of a replica is deleted with its pod. The next pod gets a copy of
// all data.
func volumeLost(f *trial) time.Duration {
	f.fillMySQL()
	n := f.c.ordinalOf(f.chooseReplica().Name)
	before, since := f.c.serverOf(n), f.history.Now()
	f.c.loseVolumes(n)
	f.c.awaitOtherServer(n, before)
	return f.endEvent(eventVolumeLost, since, true)
}

// Of the data that is copied: a gibibyte, in tables whose checksums each take a moment.
const (
	largeTables = 16
	largeParts  = 4 // of 16 MiB
)

// fillMySQL has the cluster keep a gibibyte of noise, unless it has.
func (f *trial) fillMySQL() {
	f.c.t.Helper()
	const part = `set session cte_max_recursion_depth = 4096; insert into %s (noise)
		with recursive counted (n) as (select 1 union all select n + 1 from counted where n < 4096)
		select concat(random_bytes(1024), random_bytes(1024), random_bytes(1024), random_bytes(1024)) from counted`
	for n := range largeTables {
		table := fmt.Sprintf("app.large_%d", n)
		f.c.runMySQL(leading, "create table if not exists "+table+" (n int auto_increment primary key, noise varbinary(4096))")
		for f.c.runMySQL(leading, fmt.Sprintf("select count(*) >= %d from %s", largeParts*4096, table)) == "0" {
			f.c.runMySQL(leading, fmt.Sprintf(part, table))
		}
	}
	f.db.awaitCaughtUp(f.c, f.leadingPod().Name)
}
