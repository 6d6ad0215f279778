//go:build e2e && bench

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestBenchEtcdWriteGap measures the longest time without an acknowledged write,
// of an application that writes every 10 ms through the Service, while members
// come and go. It asserts nothing: these machines are noisy.
func TestBenchEtcdWriteGap(t *testing.T) {
	writePause = 10 * time.Millisecond
	c := newSubject(t, etcd, 1)
	c.waitReady()
	w := c.startWriter()
	report := "\n| etcd: longest gap between writes | measured |\n|---|---|\n"
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"nothing happens for ten seconds", func() { time.Sleep(10 * time.Second) }},
		{"1 → 3 members", func() { c.scaleTo(3); c.waitReady() }},
		{"3 → 5 members", func() { c.scaleTo(5); c.waitReady() }},
		{"5 → 3 members, the leader goes", func() { c.transferLeader(4); c.scaleTo(3); c.waitReady() }},
		{"the leader's pod is deleted", func() { c.removeLeader(); c.awaitWhole() }},
		{"the leader's pod is killed", func() { c.removeLeader(client.GracePeriodSeconds(0)); c.awaitWhole() }},
		{"every member is restarted for a setting", func() { c.changeSpec(etcd.restarted); c.waitReady() }},
		{"3 → 1 member, the leader goes", func() { c.transferLeader(2); c.scaleTo(1); c.waitReady() }},
	} {
		w.goesOn()
		w.takeGap()
		step.do()
		w.goesOn()
		report += fmt.Sprintf("| %s | %s |\n", step.what, w.takeGap())
	}
	w.stopWriting()
	t.Log(report)
}

// removeLeader deletes the pod that leads.
func (c *subject) removeLeader(how ...client.DeleteOption) {
	c.t.Helper()
	var pod corev1.Pod
	c.readObject(&pod, c.readGroup().leaderPod())
	must(c.t, env.client.Delete(c.t.Context(), &pod, how...), "delete the leader's pod")
}

// awaitWhole waits until nothing is broken, after it was.
func (c *subject) awaitWhole() {
	c.t.Helper()
	time.Sleep(settlePeriod)
	c.waitFor(readyTimeout, "the cluster is whole again", checkWhole)
}
