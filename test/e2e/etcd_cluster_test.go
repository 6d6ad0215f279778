//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// oldEtcd is the version of the manifest that a first user writes.
const oldEtcd = "3.5.9"

// etcdSeedManifest: the whole manifest that a first user writes, in these versions.
func etcdSeedManifest(t *testing.T, versions ...string) {
	needKind(t, etcd)
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			needVersion(t, "etcd", lineOf(version), version)
			c := newSubject(t, etcd, 3, fmt.Sprintf("version: %q, storage: {size: 1Gi}", version), `backup: {schedule: "0 2 * * *"}`)
			obj := c.waitReady()
			nodes := map[string]bool{}
			for _, pod := range c.listPods() {
				nodes[pod.Spec.NodeName] = true
			}
			if len(nodes) != 3 {
				t.Errorf("three members are on %d nodes", len(nodes))
			}
			said := obj.CommonStatus()
			if said.ReadyReplicas != 3 || said.Version != version || said.CredentialsSecret != c.name+"-app" || len(said.Members) != 3 {
				t.Errorf("status says %+v", said)
			}
			etcd.awaitUnited(c, 3)
			must(t, etcd.inForce(t.Context(), obj), "what the manifest declares")
			c.waitFor(readyTimeout, "the member that leads is called so", func(obj v1alpha1.Cluster) error {
				if said, leader := obj.CommonStatus().Primary, c.readGroup().leaderPod(); said != leader {
					return fmt.Errorf("status says that %s leads, it is %s", said, leader)
				}
				return nil
			})
			app := newEtcdApp(t, c)
			app.runEtcdctl(t, "put", "greeting", "hello")
			if got := app.runEtcdctl(t, "get", "--print-value-only", "greeting"); got != "hello" {
				t.Errorf("the application reads %q", got)
			}
			app.awaitRefused(t, "get", "greeting")
			b := c.createBackup("by-hand", v1alpha1.DeletionRetain)
			c.waitBackup(b)
			if b.Status.Result.Version != version || c.getCluster().CommonStatus().NextBackup == nil {
				t.Errorf("the backup says %+v, the cluster that the next one is at %v", b.Status.Result, c.getCluster().CommonStatus().NextBackup)
			}
		})
	}
}

// etcdScale goes from one member to these numbers of members, one after the other,
// under an application that writes. The leader is put where it has to move away.
func etcdScale(t *testing.T, steps ...int) {
	c := newSubject(t, etcd, 1)
	c.waitReady()
	w := c.startWriter()
	first := c.podIncarnation(0)
	watch := watchMembership(c)
	for _, members := range steps {
		before := len(c.listPods())
		if members < before {
			c.transferLeader(before - 1)
		}
		mark := c.markPlace()
		c.scaleTo(int32(members))
		c.waitReady()
		etcd.awaitUnited(c, members)
		// An election may have moved the leader before the operator could.
		if members < before && c.ledUnder(mark, c.podName(before-1)) {
			waitEvent(t, c, v1alpha1.ReasonStepStarted, "MoveLeader", c.podName(before-1)+" leads no longer")
		}
		t.Logf("to %d members: the longest gap %s", members, w.takeGap())
		w.goesOn()
	}
	watch()
	w.stopWriting()
	if now := c.podIncarnation(0); now != first {
		t.Errorf("scaling touched the first member: %s, before %s", now, first)
	}
}

// transferLeader makes a member the leader. A transfer that takes too long is given up
// by etcd, and an election may take the place away again: it is asked for until
// it is observed.
func (c *subject) transferLeader(ordinal int) {
	c.t.Helper()
	eventually(c.t, readyTimeout, c.podName(ordinal)+" leads", func(ctx context.Context) error {
		g, err := groupOf(ctx, c.namespace, c.podName(0))
		if err != nil || g.leaderPod() == c.podName(ordinal) {
			return err
		}
		if g.leaderPod() == "" {
			return errors.New("no member leads")
		}
		// Only the leader can give its place away.
		_, err = inMember(ctx, c.namespace, g.leaderPod(), "move-leader", fmt.Sprintf("%x", g.memberIDs()[c.podName(ordinal)]))
		return errors.Join(fmt.Errorf("%s leads", g.leaderPod()), err)
	})
}

// ledUnder: the operator saw a member lead after it had read the spec that is
// in force now.
func (c *subject) ledUnder(mark int, pod string) bool {
	return slices.ContainsFunc(c.sinceMark(mark), func(obj v1alpha1.Cluster) bool {
		status := obj.CommonStatus()
		return status.Primary == pod && status.ObservedGeneration == obj.GetGeneration()
	})
}

// watchMembership reads all the time the membership as the first member sees
// it, until the function that it returns is called: at most one member is on
// its way in, and no voter comes that never started.
func watchMembership(c *subject) func() {
	ctx, cancel := context.WithCancel(c.t.Context())
	var wait sync.WaitGroup
	wait.Go(func() {
		var before *group
		for ; ctx.Err() == nil; time.Sleep(pollInterval) {
			now, err := membershipOf(ctx, c.namespace, c.podName(0))
			if err != nil {
				continue // a member that comes or goes does not answer for a moment
			}
			if before != nil {
				if err := safeChange(before, now); err != nil {
					c.t.Error(err)
				}
			}
			before = now
		}
	})
	return func() {
		cancel()
		wait.Wait()
	}
}

// safeChange says what is unsafe in the step from one membership to the next.
func safeChange(before, now *group) error {
	var errs []error
	known, incoming := map[uint64]groupMember{}, 0
	for _, m := range before.Members {
		known[m.ID] = m
	}
	for _, m := range now.Members {
		was := known[m.ID]
		if m.Learner || m.Name == "" {
			incoming++
		}
		// Who was added and promoted between two checks has started meanwhile.
		if m.Name == "" && !m.Learner {
			errs = append(errs, fmt.Errorf("%v has a vote and never started; before: %+v", m.PeerURLs, was))
		}
	}
	if incoming > 1 {
		errs = append(errs, fmt.Errorf("%d members are on their way in at once", incoming))
	}
	return errors.Join(errs...)
}

// etcdKilledPods: these members' pods are deleted without a grace period, one after
// the other. The same members come back.
func etcdKilledPods(t *testing.T, ordinals ...int) {
	c := newSubject(t, etcd, 3)
	c.waitReady()
	ids := c.readGroup().memberIDs()
	w := c.startWriter()
	for _, n := range ordinals {
		if n == 1 {
			newDocsShell(t, c.namespace).runStep(t, "EtcdKilledPods", "delete-pod", "config-1", c.podName(n))
		} else {
			c.killPod(n)
		}
		c.waitFor(readyTimeout, "the cluster is whole again", checkWhole)
		etcd.awaitUnited(c, 3)
		t.Logf("%s killed: the longest gap %s", c.podName(n), w.takeGap())
		w.goesOn()
	}
	if now := c.readGroup().memberIDs(); !maps.Equal(now, ids) {
		t.Errorf("the members are %v, before %v", now, ids)
	}
	w.stopWriting()
}

// killPod deletes a pod without a grace period and waits until it is another.
func (c *subject) killPod(ordinal int) {
	c.t.Helper()
	var pod corev1.Pod
	c.readObject(&pod, c.podName(ordinal))
	must(c.t, env.client.Delete(c.t.Context(), &pod, client.GracePeriodSeconds(0)), "kill the pod")
	eventually(c.t, readyTimeout, "another pod runs", func(ctx context.Context) error {
		var now corev1.Pod
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(&pod), &now); err != nil {
			return err
		}
		if now.UID == pod.UID || !podReady(&now) {
			return fmt.Errorf("%s is %s", now.UID, now.Status.Phase)
		}
		return nil
	})
}

// etcdLostVolumes: the volumes of these members are deleted, one after the other.
// The member is named, another takes its place, and nothing is lost.
func etcdLostVolumes(t *testing.T, ordinals ...int) {
	c := newSubject(t, etcd, 3)
	identifier := c.waitReady().CommonStatus().SystemIdentifier
	w := c.startWriter()
	for _, n := range ordinals {
		before := c.readGroup().memberIDs()
		mark := c.markPlace()
		if n == 1 {
			newDocsShell(t, c.namespace).runStep(t, "EtcdLostVolumes", "replace-member", "config-1", c.podName(n))
		} else {
			c.loseVolumes(n)
		}
		c.waitFor(readyTimeout, "another member is in the place of "+c.podName(n), func(obj v1alpha1.Cluster) error {
			if err := checkWhole(obj); err != nil {
				return err
			}
			g, err := groupOf(t.Context(), c.namespace, c.podName(n))
			if err == nil && g.memberIDs()[c.podName(n)] == before[c.podName(n)] {
				err = errors.New("it is the same one")
			}
			return err
		})
		etcd.awaitUnited(c, 3)
		for pod, id := range c.readGroup().memberIDs() {
			if pod != c.podName(n) && before[pod] != id {
				t.Errorf("%s is another member, too", pod)
			}
		}
		c.wasDegraded(mark, c.podName(n))
		t.Logf("%s lost its volume: the longest gap %s", c.podName(n), w.takeGap())
		w.goesOn()
	}
	if now := c.getCluster().CommonStatus().SystemIdentifier; now != identifier {
		t.Errorf("another cluster was bootstrapped: %s, before %s", now, identifier)
	}
	w.stopWriting()
}

// loseVolumes deletes members' volumes and, because a volume in use stays, their
// pods, until other volumes are in their places.
func (c *subject) loseVolumes(ordinals ...int) {
	c.t.Helper()
	lost := map[string]types.UID{}
	for _, n := range ordinals {
		volume := &corev1.PersistentVolumeClaim{}
		c.readObject(volume, c.volumeName(n))
		lost[volume.Name] = volume.UID
		must(c.t, env.client.Delete(c.t.Context(), volume), "delete the volume")
	}
	eventually(c.t, goneTimeout, "the volumes go", func(ctx context.Context) error {
		var list corev1.PersistentVolumeClaimList
		if err := env.client.List(ctx, &list, client.InNamespace(c.namespace)); err != nil {
			return err
		}
		var errs []error
		for _, v := range list.Items {
			if lost[v.Name] == v.UID {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: strings.TrimPrefix(v.Name, "data-")}}
				errs = append(errs, fmt.Errorf("%s is still there", v.Name),
					client.IgnoreNotFound(env.client.Delete(ctx, pod, client.GracePeriodSeconds(0))))
			}
		}
		return errors.Join(errs...)
	})
}

// wasDegraded wants the history to have a degraded cluster, with the member
// named.
func (c *subject) wasDegraded(mark int, member string) {
	c.t.Helper()
	var reported []string
	for _, obj := range c.sinceMark(mark) {
		for _, cond := range obj.GetConditions() {
			if cond.Type == v1alpha1.ConditionDegraded && cond.Status == metav1.ConditionTrue {
				reported = append(reported, cond.Message)
			}
		}
	}
	if !slices.ContainsFunc(reported, func(message string) bool { return strings.Contains(message, member) }) {
		c.t.Errorf("%s was not named while the cluster was degraded: %q", member, slices.Compact(reported))
	}
}

// waitDegraded waits until a member is named as what is broken.
func (c *subject) waitDegraded(member string) {
	c.t.Helper()
	c.waitFor(nodeTimeout, "degraded by "+member, func(obj v1alpha1.Cluster) error {
		cond := meta.FindStatusCondition(obj.GetConditions(), v1alpha1.ConditionDegraded)
		if cond == nil {
			return fmt.Errorf("it is not degraded; the phase is %s", obj.CommonStatus().Phase)
		}
		return holdsAll(cond.Message, member)
	})
}

// etcdUnreachable: a pod that cannot run is no reason to remove its member.
func etcdUnreachable(t *testing.T) {
	c := newSubject(t, etcd, 3)
	c.waitReady()
	ids := c.readGroup().memberIDs()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "no-more-pods"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")},
	}}
	must(t, env.client.Create(t.Context(), quota), "create a quota")
	var pod corev1.Pod
	c.readObject(&pod, c.podName(1))
	eventually(t, revertTimeout, "the quota is in force", func(ctx context.Context) error {
		err := env.client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && len(quota.Status.Used) == 0 {
			err = errors.New("not yet")
		}
		return err
	})
	must(t, env.client.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)), "kill the pod")
	c.waitDegraded(c.podName(1))
	time.Sleep(settlePeriod)
	if err := env.client.Get(t.Context(), client.ObjectKeyFromObject(&pod), &pod); !apierrors.IsNotFound(err) {
		t.Fatalf("the pod is there: %v", err)
	}
	g, err := membershipOf(t.Context(), c.namespace, c.podName(0))
	must(t, err, "ask for the membership")
	if now := g.memberIDs(); !maps.Equal(now, ids) {
		t.Errorf("the members are %v, before %v", now, ids)
	}
	must(t, env.client.Delete(t.Context(), quota), "delete the quota")
	c.waitFor(readyTimeout, "the cluster is whole again", checkWhole)
	etcd.awaitUnited(c, 3)
}
