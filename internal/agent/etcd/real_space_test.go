//go:build etcd

package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A database that reaches its quota says so, and what there is to give back.
func TestRealQuota(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.DataLimit = 64 << 20 })
	r := w.seed(t.TempDir())
	c := w.dial(0)
	value := strings.Repeat("x", 1<<20)
	var err error
	var last int64
	for i := range 100 {
		var done *clientv3.PutResponse
		if done, err = c.Put(w.context(), fmt.Sprint(i%4), value); err != nil {
			break
		}
		last = done.Header.Revision
	}
	if err == nil {
		t.Fatal("the quota was never reached")
	}
	full := r.until("full", func(s agentapi.Status) bool { return len(readGroup(s).Alarms) > 0 && readGroup(s).DataFill >= 95 })
	if readGroup(full).Alarms[0] != "NOSPACE:"+readGroup(full).Group.Self || readGroup(full).DataLimit != 64<<20 || !full.Serving {
		t.Errorf("%+v", full)
	}

	// As the operator repairs it.
	if _, err := c.Compact(w.context(), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Defragment(w.context(), "https://"+local127(w.ports[0].client)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AlarmDisarm(w.context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	r.until("with space again", func(s agentapi.Status) bool {
		return len(readGroup(s).Alarms) == 0 && readGroup(s).DataUnused == 0 && readGroup(s).DataFill < 50
	})

	// What a compaction frees is reported, as soon as etcd has written again.
	for range 20 {
		done, err := c.Put(w.context(), "a", value)
		if err != nil {
			t.Fatal(err)
		}
		last = done.Header.Revision
	}
	if _, err := c.Compact(w.context(), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		put(t, c, "b", fmt.Sprint(i))
		time.Sleep(100 * time.Millisecond) // etcd counts at its commits
	}
	r.until("with space to give back", func(s agentapi.Status) bool { return readGroup(s).DataUnused >= 50 })
}
