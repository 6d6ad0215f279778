//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// successorLost: the primary is cut off, and so is its successor right after its first
// write. The third member leads. Then both follow it: no timeline has two histories.
func successorLost(f *failover) time.Duration {
	since := f.history.Now()
	var heals []func()
	for range 2 {
		pod, before := f.primaryPod(), f.currentLeadership()
		heals = append(heals, cutPod(f.t, pod, bothWays))
		if next := f.awaitSuccessor(before); next.Name == pod.Name {
			f.t.Errorf("%s leads, which is cut off", pod.Name)
		}
	}
	for _, heal := range heals {
		heal()
	}
	return f.endEvent("primary and its successor cut off", since, false)
}

// allPodsDeleted: the replicas receive nothing for a while, and then all pods are
// deleted at once by force. The member with the newest data leads, so nothing is lost.
func allPodsDeleted(f *failover) time.Duration {
	before, since := f.currentLeadership(), f.history.Now()
	primary := f.primaryPod().Name
	pods := f.listPods()
	for i := range pods {
		if pods[i].Name != primary {
			freezePod(f.t, &pods[i], podprocess.WALReceiver)
		}
	}
	f.w.goesOn(f.t)
	for i := range pods {
		deletePod(f.t, &pods[i], true)
	}
	f.awaitTermAfter(before)
	if now := f.primaryPod().Name; now != primary {
		f.t.Errorf("%s leads, and %s has the newest data", now, primary)
	}
	return f.endEvent("all pods deleted by force", since, true)
}

// emptyVolume: the primary's volume is lost with its pod. A pod of the same name has an
// empty one, and does not lead with it.
func emptyVolume(f *trial) time.Duration {
	before, since := f.currentTerm(), f.history.Now()
	pod := f.leadingPod()
	f.c.loseVolumes(f.c.ordinalOf(pod.Name))
	if next := f.awaitSuccessor(before); next.Name == pod.Name {
		f.c.t.Errorf("%s leads on an empty volume", pod.Name)
	}
	return f.endEvent("primary's volume lost", since, false)
}

// slotsExhausted: clients take every connection that the primary has for them. That is
// no failure: the same term goes on, and so do connections that are open.
func slotsExhausted(f *failover) time.Duration {
	before, since := f.currentLeadership(), f.history.Now()
	var taken []*pgx.Conn
	client := f.newServiceWriter("many", f.otherNode(f.primaryPod().Spec.NodeName))
	free := func() {
		for _, conn := range taken {
			ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
			_ = conn.Close(ctx)
			cancel()
		}
		taken = nil
	}
	f.t.Cleanup(free)
	eventually(f.t, readyTimeout, "no connection is left", func(ctx context.Context) error {
		for range 500 {
			conn, err := client.connect(ctx)
			if err != nil && strings.Contains(err.Error(), "53300") {
				return nil
			}
			if err != nil {
				return err
			}
			taken = append(taken, conn)
		}
		return fmt.Errorf("%d are taken", len(taken))
	})
	time.Sleep(3 * leaseDuration) // the observation itself: nothing may happen
	if now := f.currentLeadership(); now != before {
		f.t.Errorf("the Lease is %+v, before %+v", now, before)
	}
	if _, failed := f.w.countWrites(since); failed > 0 {
		f.t.Errorf("%d writes of an open connection failed, the last error is %v", failed, f.w.readError())
	}
	f.t.Logf("%d connections were taken", len(taken))
	free()
	_ = client.from.Close()
	return f.endEvent("connections used up", since, true)
}

// readersHoldReplay: a reader on each replica holds its replay back. The promotion does
// not wait for it.
func readersHoldReplay(f *failover) time.Duration {
	f.changeSpec(`parameters: {max_standby_streaming_delay: "-1"}`)
	f.waitReady()
	f.runSQL(leading, "create table if not exists held (n int)")
	primary := f.primaryPod()
	f.awaitCaughtUp(primary.Name)
	ctx, cancel := context.WithCancel(context.Background())
	f.t.Cleanup(cancel)
	for _, p := range f.listPods() {
		if p.UID == primary.UID {
			continue
		}
		go func() {
			_, _ = runWithin(ctx, 2*failoverTimeout, f.namespace, p.Name, "", "psql", "-h", agentapi.RunDir, "-U", "postgres", "-d", "app", "-c", "select pg_sleep(100) from (select count(*) from held) t")
		}()
		eventually(f.t, failoverTimeout, p.Name+" is read from", func(ctx context.Context) error {
			out, err := runLocalQuery(ctx, f.namespace, p.Name, "app", "select count(*) from pg_locks where relation = 'held'::regclass")
			if err == nil && out == "0" {
				err = errors.New("the reader holds no lock")
			}
			return err
		})
	}
	f.runSQL(leading, "truncate held")
	eventually(f.t, failoverTimeout, "replay is held back", func(ctx context.Context) error {
		for _, p := range f.listPods() {
			if p.UID == primary.UID {
				continue
			}
			out, err := runLocalQuery(ctx, f.namespace, p.Name, "app", "select pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn()")
			if err == nil && out != "t" {
				err = errors.New(p.Name + " has replayed everything")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return podForced(&f.trial)
}

// candidateFull: the volume of one replica is full when the primary is lost. A member
// leads that takes writes, and the cluster is whole once there is space.
func candidateFull(f *failover) time.Duration {
	full := f.chooseReplica()
	filler := agentapi.DataDir + "/filler"
	_, err := runCommand(f.t.Context(), f.namespace, full.Name, "", "sh", "-c", "head -c 2G /dev/zero > "+filler+" || true")
	must(f.t, err, "fill the volume of "+full.Name)
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	heal := cutPod(f.t, pod, bothWays)
	f.awaitSuccessor(before)
	heal()
	f.w.goesOn(f.t)
	eventually(f.t, readyTimeout, "the filler is removed", func(ctx context.Context) error {
		_, err := runCommand(ctx, f.namespace, full.Name, "", "rm", "-f", filler)
		return err
	})
	return f.endEvent("primary cut off, and a candidate's volume full", since, false)
}

// leaderScaledAway: under the policy Delete, the member of the highest ordinal leads and
// its node is cut off, and then it is scaled away. No volume is deleted before another
// primary is known. The others follow its timeline by then: a timeline that no other
// member has holds WAL that only a person may discard.
func leaderScaledAway(f *failover) time.Duration {
	f.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	f.awaitCaughtUp(f.leadByLast())
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	moveOperatorAway(f.t, pod.Spec.NodeName)
	f.w.enterNode(f.t, f.otherNode(pod.Spec.NodeName))
	heal := cutNode(f.t, pod.Spec.NodeName)
	f.scaleTo(failoverMembers - 1)
	f.awaitSuccessor(before)
	for began := time.Now(); time.Since(began) < outagePeriod; time.Sleep(pollInterval) {
		var claims corev1.PersistentVolumeClaimList
		must(f.t, env.client.List(f.t.Context(), &claims, client.InNamespace(f.namespace)), "list the volumes")
		for _, claim := range claims.Items {
			if claim.DeletionTimestamp != nil {
				f.t.Fatalf("%s is deleted while the node of its pod is cut off", claim.Name)
			}
		}
		if len(claims.Items) < failoverMembers {
			f.t.Fatalf("%d volumes are left", len(claims.Items))
		}
	}
	heal()
	return f.endEvent("leader's node cut off, and it scaled away", since, false)
}

// leadByLast has the member of the highest ordinal lead.
func (f *failover) leadByLast() (last string) {
	f.t.Helper()
	f.leadBy(failoverMembers - 1)
	return f.podName(failoverMembers - 1)
}

// recreatedSmaller: the last member leads, the cluster is deleted under Retain and made
// again with one member. The newest data serves, and the connection Secret logs in.
func recreatedSmaller(f *failover) {
	f.leadByLast()
	f.w.goesOn(f.t)
	f.w.stop()
	f.deleteCluster(f.retainedNames(failoverMembers)...)
	f.createCluster(1)
	f.waitFor(readyTimeout, "the data serves", func(obj *v1alpha1.PostgresCluster) error {
		if obj.Status.Primary == "" {
			return fmt.Errorf("there is no primary: %+v", obj.Status.Conditions)
		}
		return nil
	})
	primary := f.primaryPod().Name
	acknowledged, _ := f.w.countWrites(0)
	eventually(f.t, readyTimeout, "the connection Secret logs in", func(ctx context.Context) error {
		again := f.newWriter(viaService, f.primaryPod().Status.PodIP)
		again.enterNode(f.t, f.otherNode(""))
		defer func() { _ = again.from.Close() }()
		conn, err := again.connect(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		var rows int
		if err := conn.QueryRow(ctx, "select count(*) from failover_rows").Scan(&rows); err != nil {
			return err
		}
		if rows < acknowledged {
			f.t.Fatalf("%s has %d rows, and %d were acknowledged", primary, rows, acknowledged)
		}
		return nil
	})
	f.waitReady()
	f.t.Logf("%s leads the new cluster with all of %d rows", primary, acknowledged)
}
