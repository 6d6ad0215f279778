//go:build e2e || soak

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// upgradePath is from the old version to the newest, a line at a time.
func upgradePath(t *testing.T) []string {
	t.Helper()
	needVersion(t, "etcd", "3.5", oldEtcd)
	path := []string{oldEtcd}
	for line, least := range map[string]int{"3.5": 26, "3.6": 11, "3.7": 0} {
		newest := newestEtcd(line)
		if patchOf(newest) < least {
			skipTest(t, "needs etcd %s.%d or later, the nodes have %q", line, least, newest)
		}
		path = append(path, newest)
	}
	slices.Sort(path[1:])
	return path
}

// etcdUpgrades goes from the old version to the newest under an application that
// writes; on the way to some lines the operator is killed at each moment. A jump is
// refused with the way to go, and serving goes on.
func etcdUpgrades(t *testing.T, killedOnWayTo ...string) {
	path := upgradePath(t)
	c := newOperated(t, etcd, 3, fmt.Sprintf("version: %q, backup: {schedule: '0 0 1 1 *'}", path[0]))
	c.waitReady()
	ids := c.readGroup().memberIDs()
	w := c.startWriter()
	for i, version := range path[1:] {
		for _, jump := range path[min(i+2, len(path)):] {
			c.changeSpec(fmt.Sprintf("version: %q", jump))
			c.waitStalled(v1alpha1.ReasonUpgradePath, "spec.version")
			w.goesOn()
		}
		c.transferLeader(2)
		pods := watchReplacements(c)
		c.changeSpec(fmt.Sprintf("version: %q", version))
		k := &killer{c: c, killed: map[string]bool{}}
		if slices.Contains(killedOnWayTo, lineOf(version)) {
			k.killUntilRolledOut("version " + version)
		} else {
			c.waitReady()
		}
		pods.checkOnce(t, "version "+version, c.podName(0), c.podName(1), c.podName(2))
		etcd.awaitUnited(c, 3)
		c.wantPrecaution(path[i], version)
		for _, s := range c.readGroup().status {
			if s.Status.Version != version {
				t.Errorf("%s runs %s, want %s", s.Endpoint, s.Status.Version, version)
			}
		}
		if said := c.getCluster().CommonStatus().Version; said != version {
			t.Errorf("status says version %s, want %s", said, version)
		}
		t.Logf("to %s: the longest gap %s, killed at %d moments", version, w.takeGap(), len(k.killed))
		w.goesOn()
	}
	if now := c.readGroup().memberIDs(); fmt.Sprint(now) != fmt.Sprint(ids) {
		t.Errorf("the members are %v, before %v", now, ids)
	}
	c.changeSpec(fmt.Sprintf("version: %q", path[1]))
	c.waitStalled(v1alpha1.ReasonDowngradeRefused, "spec.version")
	w.goesOn()
	c.changeSpec(fmt.Sprintf("version: %q", path[3]))
	c.waitReady()
	w.stopWriting()
}

// checkOnce says whether each of these pods was replaced once, in any order.
func (r *replacements) checkOnce(t *testing.T, why string, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Logf("%s replaced %v", why, r.order)
	if got := slices.Sorted(slices.Values(r.order)); !slices.Equal(got, want) {
		t.Errorf("%s replaced %v, want each of %v once", why, r.order, want)
	}
	r.order = nil
}

// wantPrecaution wants the next minor version to have had its backup, of the one
// before it and done before any member went on; and no other version.
func (c *subject) wantPrecaution(from, to string) {
	c.t.Helper()
	var all v1alpha1.BackupList
	must(c.t, env.client.List(c.t.Context(), &all, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelBefore: to}), "list the backups")
	if lineOf(from) == lineOf(to) {
		if len(all.Items) > 0 {
			c.t.Errorf("%d backups were made before the patch %s", len(all.Items), to)
		}
		return
	}
	if len(all.Items) != 1 || !all.Items[0].HasSucceeded() || all.Items[0].Status.Result.Version != from {
		c.t.Fatalf("before %s there are the backups %+v", to, all.Items)
	}
	for _, pod := range c.listPods() {
		if done := all.Items[0].Status.CompletionTime; pod.CreationTimestamp.Before(done) {
			c.t.Errorf("%s runs %s since %s, and the backup was done at %s", pod.Name, to, pod.CreationTimestamp, done)
		}
	}
}

// lineOf a version: its major and minor.
func lineOf(version string) string { return version[:strings.LastIndex(version, ".")] }
