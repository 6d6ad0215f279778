//go:build etcd

package etcd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// A quota that is nearly used up gets its recommendation from what real etcd reports. With
// the recommended quota it goes.
func TestRealTuning(t *testing.T) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.DataLimit = 32 << 20 })
	volume := t.TempDir()
	r := w.seed(volume)
	if got := recommendQuota(r.Store.Get()); len(got) != 0 {
		t.Errorf("empty, and recommended is %+v", got)
	}
	c := w.dial(0)
	for i := range 24 << 4 { // large values would leave large gaps, which count against the quota
		put(t, c, fmt.Sprint("key-", i), strings.Repeat("x", 1<<16))
	}
	full := r.until("nearly full", func(s agentapi.Status) bool { return readGroup(s).DataInUse >= 24<<20 })
	got := recommendQuota(full)
	if len(got) != 1 || got[0].Field != "spec.quota" || got[0].Current != "32Mi" || got[0].Value != "64Mi" || !got[0].Restart {
		t.Fatalf("recommended is %+v", got)
	}
	t.Logf("%s: %s, now %s: %s", got[0].Field, got[0].Value, got[0].Current, got[0].Evidence)
	r.stop()
	w.configure(func(c *agentapi.ClusterConfig) { c.DataLimit = 64 << 20 })
	r = w.start(0, volume)
	larger := r.until("with the larger quota", func(s agentapi.Status) bool {
		return s.Serving && readGroup(s).DataLimit == 64<<20 && readGroup(s).DataInUse >= 24<<20
	})
	if got := recommendQuota(larger); len(got) != 0 {
		t.Errorf("with the recommended quota, recommended is %+v", got)
	}
}

// recommendQuota takes a status for what a member says for a quarter of an hour.
func recommendQuota(s agentapi.Status) []tune.Recommendation {
	recorder, at := tuning.NewRecorder("orders-0", "uid-0"), time.Now().UTC()
	for i := range 15 {
		recorder.Record(at.Add(time.Duration(i)*time.Minute), measureTuning(s))
	}
	return tune.Recommend(tune.Spec{Engine: tune.Etcd, Volume: 1 << 30}, recorder.Report().Slots, nil, at.Add(15*time.Minute))
}
