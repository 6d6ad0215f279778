//go:build apiserver

package primarylease

import (
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/lease"
)

func TestMain(m *testing.M) { apitest.RunTests(m) }

// Two members race for 1,000 terms. Each term is won once, and what one has won the
// other one reads.
func TestRule3EachTermIsWonOnce(t *testing.T) {
	const terms = 1000
	cluster := apitest.New(t)
	timing, err := lease.NewTiming(0)
	if err != nil {
		t.Fatal(err)
	}
	var winners [terms + 1]atomic.Int32
	var all sync.WaitGroup
	for _, uid := range []string{"p1", "p2"} {
		c, err := New(Options{
			Config: cluster.Config, Timing: timing,
			Identity: identity.Identity{Namespace: cluster.Namespace, Cluster: "orders", PodUID: uid},
			Owners:   func() []metav1.OwnerReference { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { race(t, c, uid, terms, func(term int64) { winners[term].Add(1) }) })
	}
	all.Wait()
	for term := 1; term <= terms; term++ {
		if n := winners[term].Load(); n != 1 {
			t.Errorf("term %d was won %d times", term, n)
		}
	}
}

// race claims every next term until the last one is won.
func race(t *testing.T, c *Client, uid string, terms int64, won func(term int64)) {
	for {
		r, err := c.ReadLease(t.Context())
		if err != nil {
			t.Errorf("read: %v", err)
			return
		}
		if r.Record.Term >= terms {
			return
		}
		next := record(r.Record.Term + 1)
		next.HolderUID = uid
		answer, _, err := c.WriteLease(t.Context(), r.Version, next)
		switch answer {
		case lease.Done:
			won(next.Term)
		case lease.Conflict:
		default:
			t.Errorf("term %d: %v, %v", next.Term, answer, err)
			return
		}
	}
}
