//go:build etcd

package etcd

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// secretOf is a literal that stands in keys and values.
const secretOf = "Xq7canary4111222233334444"

// untilFound waits until one of the members has found each of the classes.
func untilFound(t *testing.T, members []*run, classes ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		found := map[string]bool{}
		for _, m := range members {
			for _, i := range m.Insights.Report().Classes {
				found[i.Class] = true
			}
		}
		missing := slices.DeleteFunc(slices.Clone(classes), func(class string) bool { return found[class] })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("not found: %v", missing)
			return
		}
	}
}

// Classes that can be provoked on a real etcd are found, and no key or value is in what the
// agents answer.
func TestRealInsights(t *testing.T) {
	w := newWorld(t, 3)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.DataLimit = 64 << 20
		c.Parameters = map[string]string{"experimental-warning-apply-duration": "1ns"}
	})
	first := w.seed(t.TempDir())
	c := w.dial(0)
	put(t, c, secretOf, secretOf)
	if got := get(t, c, secretOf); got != secretOf {
		t.Errorf("got %q", got)
	}
	_ = ask(t, w, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a client that is to be refused
	members := []*run{first, w.grow(c, 1, t.TempDir()), w.grow(c, 2, t.TempDir())}
	untilFound(t, members, "EtcdStarted", "EtcdLeaderElected", "EtcdElection", "EtcdTLSRejected", "EtcdSlowApply")

	last := int64(0)
	for i := range 8 {
		done, err := c.Put(w.context(), fmt.Sprint(secretOf, i%2), strings.Repeat(secretOf, 1000))
		if err != nil {
			t.Fatal(err)
		}
		last = done.Header.Revision
	}
	if _, err := c.Compact(w.context(), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Defragment(w.context(), "https://"+local127(w.ports[0].client)); err != nil {
		t.Fatal(err)
	}
	untilFound(t, members, "EtcdCompacted", "EtcdDefragmented")

	// A leader that ends without a farewell.
	first.Lock.KillHolders()
	untilFound(t, members[1:], "EtcdLeaderLost", "EtcdPeerUnreachable")
	first.untilState(agentapi.StateRunning)
	members[1].stop()
	untilFound(t, members, "EtcdStopping")

	for _, m := range members {
		report := m.Insights.Report()
		text, err := json.Marshal(report)
		if err != nil || strings.Contains(string(text), secretOf) || strings.Contains(string(text), "canary") {
			t.Errorf("%v: %s", err, text)
		}
		t.Logf("%s: %d lines, %d of no class, %d dropped", report.Pod, report.Lines, report.Unclassified, report.Dropped)
		for _, i := range report.Classes {
			t.Logf("%s: %s ×%d %v %s", report.Pod, i.Class, i.Count, i.Largest, i.Unit)
		}
	}
}
