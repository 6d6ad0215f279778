//go:build e2e && soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	// conditionPoll is how often conditions are read beside the watch, which ends when a
	// definition changes.
	conditionPoll = 100 * time.Millisecond
	// steadyPeriod is how long clusters are observed before, and after each change of the
	// operator.
	steadyPeriod = 30 * time.Second
)

// TestSoakUpgrades lets the previous release make clusters of each kind, and the operator
// of this tree take them over and give them back, with writers all the time. No pod is
// restarted, no cluster says for a moment that it is not ready, no primary changes. Agents
// of both releases then work together: a pod that is lost returns with the agent that the
// others have, and the request to update agents replaces them one after the other.
//
// Agents of the release before may know how to join a MySQL group with a leader and not say
// so (Previous), or be of a build whose groups take turns (Turns).
func TestSoakUpgrades(t *testing.T) {
	t.Run("Previous", func(t *testing.T) { upgradeFrom(t, findPreviousRelease(t), allKinds()) })
	t.Run("Turns", func(t *testing.T) { upgradeFrom(t, turnsCommit, []*kind{mysql}) })
}

// upgradeFrom exchanges the operator of a commit and that of this tree.
func upgradeFrom(t *testing.T, commit string, kinds []*kind) {
	needCommit(t, commit)
	waitForNamespacesToEnd(t)
	previous := buildCommit(t, commit)
	t.Cleanup(func() { runIn(t, "../..", deploy) })
	runIn(t, previous, deploy)
	imageBefore := installedImage(t)

	var all []*upgraded
	for _, k := range kinds {
		needKind(t, k)
		all = append(all, &upgraded{subject: newSubject(t, k, 3), k: k})
	}
	for _, c := range all {
		c.waitReady()
		c.k.awaitUnited(c.subject, 3)
		c.writes = c.startWriter()
	}
	observeSteady(t, "before the upgrade", all, func() {})
	observeSteady(t, "upgrade", all, func() { runIn(t, "../..", deploy) })
	imageNow := installedImage(t)
	if imageNow == imageBefore {
		t.Fatalf("both operators are %s: nothing was upgraded", imageNow)
	}
	for _, c := range all {
		c.awaitAgents(imageBefore, 3)
	}
	observeSteady(t, "rollback", all, func() { runIn(t, previous, deploy) })
	observeSteady(t, "upgrade again", all, func() { runIn(t, "../..", deploy) })

	for _, c := range all {
		c.losePod(imageBefore)
		c.awaitAgents(imageBefore, 3)
	}
	for _, c := range all { // one after the other: a machine of two cores has no room for three roll-outs
		c.updateAgents(imageNow)
	}
	observeSteady(t, "rollback under newer agents", all, func() { runIn(t, previous, deploy) })
	observeSteady(t, "upgrade under the same agents", all, func() { runIn(t, "../..", deploy) })
	for _, c := range all {
		c.writes.stopWriting()
		c.k.awaitUnited(c.subject, 3) // members are compared when nothing is written
	}
}

// upgraded is a cluster whose operator is exchanged.
type upgraded struct {
	*subject
	k      *kind
	writes *writer
	// usualGap is the longest time without an acknowledged write while nothing was changed.
	usualGap time.Duration
}

// tolerableGap is the longest time without an acknowledged write that says nothing: a busy
// machine keeps a writer, or a disk, from its turn as long when nothing is changed. A member
// that restarts, or a primary that changes, takes longer.
func (c *upgraded) tolerableGap() time.Duration { return max(2*time.Second, 3*c.usualGap) }

// observeSteady changes the operator, and reports every moment at which a cluster is not
// as it was before, and a time without an acknowledged write that is no noise of this
// machine: what that is shows while nothing is changed, which is observed first.
func observeSteady(t *testing.T, what string, all []*upgraded, change func()) {
	t.Helper()
	var before []string
	var marks []int
	var written []int
	for _, c := range all {
		c.writes.takeGap()
		before, marks, written = append(before, c.describeSteady()), append(marks, c.markPlace()), append(written, c.writes.countWrites())
	}
	observer := startConditionPoll(t, all)
	change()
	for _, c := range all {
		c.awaitHandled()
	}
	time.Sleep(steadyPeriod)
	polls := observer.stop()
	for i, c := range all {
		gap := c.writes.takeGap()
		t.Logf("%s, %s: longest time without an acknowledged write %s, %d writes, conditions read %d times", what, c.k.name, gap, c.writes.countWrites()-written[i], polls[i].reads)
		if c.usualGap == 0 {
			c.usualGap = gap
		}
		if gap > c.tolerableGap() {
			t.Errorf("%s, %s: no write was acknowledged for %s, and %s without a change", what, c.k.name, gap, c.usualGap)
		}
		for _, fault := range polls[i].faults {
			t.Errorf("%s, %s: %s", what, c.k.name, fault)
		}
		if polls[i].reads == 0 {
			t.Errorf("%s, %s: the conditions were never read", what, c.k.name)
		}
		if now := c.describeSteady(); now != before[i] {
			t.Errorf("%s, %s: a member or the primary changed:\n%s\nbefore:\n%s", what, c.k.name, now, before[i])
		}
		for _, obj := range c.sinceMark(marks[i]) {
			if err := rolledOut(obj); err != nil {
				t.Errorf("%s, %s: resourceVersion %s was not ready: %v", what, c.k.name, obj.GetResourceVersion(), err)
			}
		}
		c.writes.goesOn()
	}
}

// describeSteady is what no exchange of the operator changes.
func (c *upgraded) describeSteady() string {
	c.t.Helper()
	return c.allIncarnations() + "\nprimary " + c.getCluster().CommonStatus().Primary
}

// conditionPolls are what reading the conditions of one cluster found.
type conditionPolls struct {
	reads  int
	faults []string
}

type conditionObserver struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	polls  []conditionPolls
}

// startConditionPoll reads the conditions of clusters again and again. What the API server
// does not answer is no read: a definition that changes is away for a moment.
func startConditionPoll(t *testing.T, all []*upgraded) *conditionObserver {
	ctx, cancel := context.WithCancel(t.Context())
	o := &conditionObserver{cancel: cancel, polls: make([]conditionPolls, len(all))}
	for i, c := range all {
		o.done.Go(func() {
			for ctx.Err() == nil {
				obj := c.k.empty()
				if err := env.client.Get(ctx, c.nameOf(""), obj); err == nil {
					o.polls[i].add(rolledOut(obj))
				}
				select {
				case <-ctx.Done():
				case <-time.After(conditionPoll):
				}
			}
		})
	}
	t.Cleanup(cancel)
	return o
}

// add counts a read; a fault that lasts is reported once.
func (p *conditionPolls) add(err error) {
	p.reads++
	if err != nil && (len(p.faults) == 0 || p.faults[len(p.faults)-1] != err.Error()) {
		p.faults = append(p.faults, err.Error())
	}
}

func (o *conditionObserver) stop() []conditionPolls {
	o.cancel()
	o.done.Wait()
	return o.polls
}

// agentImages are the images that the members' pods have their agents from, by ordinal.
func (c *upgraded) agentImages() (images []string) {
	c.t.Helper()
	for _, pod := range c.listPods() {
		images = append(images, pod.Spec.InitContainers[0].Image)
	}
	return images
}

// awaitAgents waits until status reports the image of agents, and so many of them behind
// the operator's; the pods and what the StatefulSet declares are compared to it.
func (c *upgraded) awaitAgents(image string, behind int) {
	c.t.Helper()
	c.waitFor(revertTimeout, "status reports the agents", func(obj v1alpha1.Cluster) error {
		st := obj.CommonStatus().Agent
		if st == nil || st.Image != image || len(st.Outdated) != behind || (st.Available != "") != (behind > 0) {
			return fmt.Errorf("agents: %+v, want %s with %d behind", st, image, behind)
		}
		return nil
	})
	if got := c.agentImages(); slices.ContainsFunc(got, func(i string) bool { return i != image }) {
		c.t.Errorf("%s: the pods have agents of %v, want %s", c.k.name, got, image)
	}
}

// losePod deletes a pod, as an eviction does: what returns has the agent of the others,
// created by the newer operator.
func (c *upgraded) losePod(image string) {
	c.t.Helper()
	leader := c.getCluster().CommonStatus().Primary
	ordinal := 2
	if c.podName(ordinal) == leader {
		ordinal = 1
	}
	var before corev1.Pod
	c.readObject(&before, c.podName(ordinal))
	must(c.t, env.client.Delete(c.t.Context(), &before), "delete a pod")
	pod := c.awaitNewPod(&before)
	if got := pod.Spec.InitContainers[0].Image; got != image {
		c.t.Errorf("%s: the pod that returned has the agent of %s, want %s", c.k.name, got, image)
	}
	eventually(c.t, readyTimeout, "the pod that returned is ready", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if !podReady(pod) {
			return errors.New("it is not")
		}
		return nil
	})
	c.waitReady()
	c.writes.goesOn()
}

// updateAgents asks for agents of the operator's image, and waits until all members have
// them.
func (c *upgraded) updateAgents(image string) {
	c.t.Helper()
	c.writes.takeGap()
	must(c.t, c.annotate(c.t.Context(), v1alpha1.AnnotationUpdateAgents, "soak"), "ask for agents")
	c.waitFor(3*readyTimeout, "the request is carried out", func(obj v1alpha1.Cluster) error {
		for _, r := range obj.CommonStatus().Requests {
			if r.Type == "update-agents" && r.ID == "soak" && strings.HasPrefix(r.Result, "done") {
				return nil
			}
		}
		return fmt.Errorf("requests: %+v", obj.CommonStatus().Requests)
	})
	c.waitFor(readyTimeout, "the last member is back", checkWhole)
	c.awaitAgents(image, 0)
	c.writes.goesOn()
	c.t.Logf("%s: all agents replaced; longest time without an acknowledged write %s", c.k.name, c.writes.takeGap())
}
