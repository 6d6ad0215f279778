//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/writehistory"
)

// failoverMembers is how many members a cluster of the failover tests has.
const failoverMembers = 3

// failover is a PostgresCluster whose primary changes under a client that writes.
type failover struct {
	*cluster
	trial
}

// newFailover starts the client, and the watch of the Lease, on a cluster that is ready.
func newFailover(c *cluster) *failover {
	c.t.Helper()
	f := &failover{cluster: c, trial: *newTrial(c.subject, postgresFailovers{})}
	f.watchLease()
	return f
}

// newUnwatched creates a cluster whose status is not followed: no watch survives an API
// server that stands still.
func newUnwatched(t *testing.T, replicas int32, edits ...func(*v1alpha1.PostgresCluster)) *cluster {
	t.Helper()
	needKind(t, postgres)
	c := &cluster{unwatched(t, postgres)}
	c.createCluster(replicas, edits...)
	return c
}

// runPart runs a part of the test on the same cluster.
func (f *failover) runPart(t *testing.T, name string, run func(*failover)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		part := *f
		part.cluster = f.withTest(t)
		part.c = part.subject
		defer func() { f.inside, f.lost = part.inside, part.lost }()
		run(&part)
	})
}

// readLeadership is what the Lease says.
func readLeadership(ctx context.Context, namespace, name string) (leadership, error) {
	var lease coordinationv1.Lease
	if err := env.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name + postgres.lease}, &lease); err != nil {
		return leadership{}, err
	}
	var record struct{ Term, Timeline int64 }
	if err := json.Unmarshal([]byte(lease.Annotations[annotationLeadership]), &record); err != nil {
		return leadership{}, fmt.Errorf("annotation %s of Lease %s: %w", annotationLeadership, lease.Name, err)
	}
	return leadership{types.UID(ptr.Deref(lease.Spec.HolderIdentity, "")), record.Term, record.Timeline}, nil
}

// forgedTimelines is from where on the Lease names timelines by hand: no elections of a
// test reach the number.
const forgedTimelines = 1000

// annotationLeadership is the record of the election in the Lease.
const annotationLeadership = "holdfast.dev/leadership"

// watchLease notes each timeline that the Lease names, until the test ends. A read that
// fails shows nothing; the next one is later, and proves less.
func (f *failover) watchLease() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(truthInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			if l, err := readLeadership(ctx, f.namespace, f.name); err == nil && l.holder != "" && l.timeline < forgedTimelines {
				f.history.AddElection(writehistory.Election{Timeline: l.timeline, At: f.history.Now()})
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	f.t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (c *cluster) currentLeadership() leadership {
	c.t.Helper()
	l, err := readLeadership(c.t.Context(), c.namespace, c.name)
	must(c.t, err, "read the Lease")
	return l
}

// findPrimary is the pod that holds the Lease.
func (c *cluster) findPrimary(ctx context.Context) (*corev1.Pod, leadership, error) {
	l, err := readLeadership(ctx, c.namespace, c.name)
	if err != nil {
		return nil, l, err
	}
	pod, err := c.findHolder(ctx, l)
	return pod, l, err
}

// primaryPod waits for a pod that holds the Lease.
func (c *cluster) primaryPod() *corev1.Pod {
	c.t.Helper()
	var pod *corev1.Pod
	eventually(c.t, failoverTimeout, "a pod holds the Lease", func(ctx context.Context) (err error) {
		pod, _, err = c.findPrimary(ctx)
		return err
	})
	return pod
}

// awaitCaughtUp waits until every other member streams from the primary and has
// replayed what that has now. A former primary has as much WAL until it is rewound, and
// receives nothing.
func (c *cluster) awaitCaughtUp(primary string) {
	c.t.Helper()
	var position string
	eventually(c.t, failoverTimeout, "the primary answers", func(ctx context.Context) (err error) {
		position, err = runLocalQuery(ctx, c.namespace, primary, "app", "select pg_current_wal_flush_lsn()")
		return err
	})
	for _, pod := range c.listPods() {
		if pod.Name == primary {
			continue
		}
		eventually(c.t, readyTimeout, pod.Name+" has everything", func(ctx context.Context) error {
			out, err := runLocalQuery(ctx, c.namespace, pod.Name, "app", fmt.Sprintf("select pg_is_in_recovery() and pg_last_wal_replay_lsn() >= '%s' and exists (select from pg_stat_wal_receiver)", position))
			if err == nil && out != "t" {
				err = fmt.Errorf("it has not replayed %s", position)
			}
			return err
		})
	}
}

// readContent is a checksum of each table of a member, over its rows in order.
func (c *cluster) readContent(pod string) map[string]string {
	c.t.Helper()
	query := func(q string) string {
		out, err := runLocalQuery(c.t.Context(), c.namespace, pod, "app", q)
		must(c.t, err, pod+": "+q)
		return out
	}
	sums := map[string]string{}
	for table := range strings.FieldsSeq(query("select quote_ident(relname) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1")) {
		sums[table] = query("select count(*) || ':' || md5(coalesce(string_agg(t::text, ',' order by t::text), '')) from public." + table + " t")
	}
	return sums
}

// postgresFailovers is how the tests of failovers get at PostgreSQL.
type postgresFailovers struct{}

func (postgresFailovers) readLeadership(ctx context.Context, c *subject) (leadership, error) {
	return readLeadership(ctx, c.namespace, c.name)
}

func (postgresFailovers) newRows(c *subject, address string) openRows {
	c.t.Helper()
	return openPostgres((&cluster{c}).rowsConfig(address))
}

func (postgresFailovers) awaitCaughtUp(c *subject, primary string) {
	c.t.Helper()
	(&cluster{c}).awaitCaughtUp(primary)
}

// losesNothing: replication is asynchronous unless the spec asks for more.
func (postgresFailovers) losesNothing() bool { return false }

func (postgresFailovers) keptRows(c *subject, pod string) map[string][]int {
	c.t.Helper()
	return (&cluster{c}).keptRows(pod)
}

func (postgresFailovers) readContent(c *subject, pod string) map[string]string {
	c.t.Helper()
	return (&cluster{c}).readContent(pod)
}
