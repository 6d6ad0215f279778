//go:build etcd

package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies/recording"
	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// keysOfLoad is how many keys the load reads and writes.
const keysOfLoad = 3000

var valueOfLoad = strings.Repeat("v", 2000)

func keyOfLoad(n int) string { return fmt.Sprintf("/registry/%05d", n) }

// TestRecordAnomalies records what the replay in internal/anomaly judges. make
// record-anomalies runs it.
func TestRecordAnomalies(t *testing.T) {
	recording.SkipUnlessAsked(t)
	w := newWorld(t, 1)
	member := w.seed(t.TempDir())
	clients := []*clientv3.Client{w.dial(0), w.dial(0), w.dial(0), w.dial(0)}
	for n := range keysOfLoad {
		put(t, clients[0], keyOfLoad(n), valueOfLoad)
	}
	// Components of a control plane watch what they are about.
	for i := range 60 {
		go watchKeys(t.Context(), clients[i%len(clients)], keyOfLoad(i))
	}
	version, err := clients[0].Status(w.context(), "https://"+local127(w.ports[0].client))
	if err != nil {
		t.Fatal(err)
	}
	r := recording.Recorder{
		Engine: "etcd", Version: version.Version, Signals: anomaly.EtcdSignals,
		Measure: (&signalReader{fetch: member.fetchMetrics}).measureSignals,
		Load:    loadKeys(clients), Faults: listFaults(w),
	}
	r.Record(t)
}

func watchKeys(ctx context.Context, c *clientv3.Client, prefix string) {
	for answer := range c.Watch(clientv3.WithRequireLeader(ctx), prefix) {
		if answer.Err() != nil {
			return
		}
	}
}

func loadKeys(clients []*clientv3.Client) *recording.Load {
	request := func(do func(ctx context.Context, c *clientv3.Client, key string) error) func(context.Context, int) error {
		return func(ctx context.Context, worker int) error {
			return do(ctx, clients[worker%len(clients)], keyOfLoad(rand.IntN(keysOfLoad)))
		}
	}
	return &recording.Load{
		PerSecond: 80,
		Requests: []recording.Request{
			{Weight: 55, Do: request(func(ctx context.Context, c *clientv3.Client, key string) error {
				_, err := c.Get(ctx, key)
				return err
			})},
			{Weight: 8, Do: request(func(ctx context.Context, c *clientv3.Client, key string) error {
				_, err := c.Get(ctx, key[:len(key)-1], clientv3.WithPrefix())
				return err
			})},
			{Weight: 30, Do: request(func(ctx context.Context, c *clientv3.Client, key string) error {
				_, err := c.Put(ctx, key, valueOfLoad[:200+rand.IntN(1800)])
				return err
			})},
			{Weight: 7, Do: request(func(ctx context.Context, c *clientv3.Client, key string) error {
				_, err := c.Delete(ctx, key)
				return err
			})},
		},
		Job: func(ctx context.Context) error {
			_, err := clients[0].Get(ctx, "/registry/00", clientv3.WithPrefix())
			return err
		},
	}
}

// listFaults are caused one after the other, by clients of their own.
func listFaults(w *world) []recording.Fault {
	c := w.dial(0)
	together := func(clients int, perSecond float64, do func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			errs := make([]error, clients)
			var running sync.WaitGroup
			for i := range clients {
				running.Go(func() { errs[i] = recording.Repeat(ctx, perSecond, do) })
			}
			running.Wait()
			return errors.Join(errs...)
		}
	}
	large := strings.Repeat("x", 128<<10)
	return []recording.Fault{
		{Cause: recording.Cause{Name: "large_values", What: "a client writes 128 KiB eight times a second", Signals: []string{"received_bytes"}}, Run: together(1, 8, func(ctx context.Context) error {
			_, err := c.Put(ctx, "/large", large)
			return err
		})},
		{Cause: recording.Cause{Name: "watchers", What: "a client begins 600 watches", Signals: []string{"watchers"}}, Run: func(ctx context.Context) error {
			for i := range 600 {
				go watchKeys(ctx, c, keyOfLoad(i))
			}
			<-ctx.Done()
			return nil
		}},
		{Cause: recording.Cause{Name: "scans", What: "two clients read all keys, once a second each", Signals: []string{"sent_bytes"}}, Run: together(2, 1, func(ctx context.Context) error {
			_, err := c.Get(ctx, "/registry/", clientv3.WithPrefix())
			return err
		})},
		{Cause: recording.Cause{Name: "deletes", What: "two clients write and delete keys, twelve times a second each", Signals: []string{"deletes", "puts"}}, Run: together(2, 12, func(ctx context.Context) error {
			key := fmt.Sprintf("/lost/%d", rand.IntN(1000))
			if _, err := c.Put(ctx, key, "x"); err != nil {
				return err
			}
			_, err := c.Delete(ctx, key)
			return err
		})},
		{Cause: recording.Cause{Name: "writes", What: "eight clients write small values, 20 times a second each", Signals: []string{"puts", "sync_time", "commit_time"}}, Run: together(8, 20, func(ctx context.Context) error {
			_, err := c.Put(ctx, fmt.Sprintf("/flood/%d", rand.IntN(1000)), "x")
			return err
		})},
		{Cause: recording.Cause{Name: "clients_away", What: "the load stops", Signals: []string{"puts", "ranges", "received_bytes", "sent_bytes"}}},
	}
}
