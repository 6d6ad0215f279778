//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/writehistory"
)

// failoverMembers is how many members a cluster of the failover tests has.
const failoverMembers = 3

// failover is a cluster whose primary changes under a client that writes.
type failover struct {
	*cluster
	history *writehistory.Recorder
	w       *failoverWriter
	// inside counts the clients that were started in members' pods.
	inside int
	// lost is how many acknowledged writes were lost so far, of all clients.
	lost int
	// measured are the events so far, of all parts of the test.
	measured *[]measurement
}

// newFailover starts the client, and the watch of the Lease, on a cluster that is ready.
func newFailover(c *cluster) *failover {
	c.t.Helper()
	c.waitReady()
	f := &failover{cluster: c, history: writehistory.NewRecorder(), measured: &[]measurement{}}
	f.watchLease()
	f.w = f.startWriterThrough(f.otherNode(f.primaryPod().Spec.NodeName))
	return f
}

// newUnwatched creates a cluster whose status is not followed: no watch survives an API
// server that stands still.
func newUnwatched(t *testing.T, replicas int32, edits ...func(*v1alpha1.PostgresCluster)) *cluster {
	t.Helper()
	needKind(t, postgres)
	c := &cluster{&subject{
		t: t, kind: postgres, namespace: newNamespace(t, ""), name: orders, operator: installed,
		history: &history{changed: make(chan struct{}, 1), rolledOut: map[string]bool{}},
	}}
	c.createCluster(replicas, edits...)
	return c
}

// runPart runs a part of the test on the same cluster.
func (f *failover) runPart(t *testing.T, name string, run func(*failover)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		part := *f
		part.cluster = f.withTest(t)
		defer func() { f.inside, f.lost = part.inside, part.lost }()
		run(&part)
	})
}

// leadership is what the Lease says.
type leadership struct {
	holder         types.UID
	term, timeline int64
}

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
	pods, err := memberPods(ctx, c.namespace, c.name)
	if err != nil {
		return nil, l, err
	}
	for i := range pods {
		if pods[i].UID == l.holder {
			return &pods[i], l, nil
		}
	}
	return nil, l, fmt.Errorf("term %d is held by %q, which is no member's pod", l.term, l.holder)
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

// awaitSuccessor waits until another pod leads than that of an earlier term, and takes
// the client's writes. Role labels name it alone.
func (f *failover) awaitSuccessor(before leadership) *corev1.Pod {
	f.t.Helper()
	var pod *corev1.Pod
	var now leadership
	eventually(f.t, failoverTimeout, "another pod leads", func(ctx context.Context) (err error) {
		pod, now, err = f.findPrimary(ctx)
		if err == nil && (now.term <= before.term || now.holder == before.holder) {
			err = fmt.Errorf("term %d of %s, before term %d of %s", now.term, now.holder, before.term, before.holder)
		}
		return err
	})
	if now.timeline <= before.timeline {
		f.t.Errorf("term %d reserved timeline %d, and term %d before it %d", now.term, now.timeline, before.term, before.timeline)
	}
	f.w.writesOn(f.t, now.timeline)
	eventually(f.t, failoverTimeout, "only "+pod.Name+" has the role primary", func(ctx context.Context) error {
		pods, err := memberPods(ctx, f.namespace, f.name)
		if err != nil {
			return err
		}
		var primaries []string
		for _, p := range pods {
			if p.Labels[v1alpha1.LabelRole] == v1alpha1.RolePrimary {
				primaries = append(primaries, p.Name)
			}
		}
		if !slices.Equal(primaries, []string{pod.Name}) {
			return fmt.Errorf("%v have", primaries)
		}
		return nil
	})
	return pod
}

// awaitReported waits until the status names the pod that holds the Lease, and all is
// well.
func (f *failover) awaitReported() {
	f.t.Helper()
	f.waitReady()
	f.waitFor(failoverTimeout, "status.primary names the holder of the Lease", func(obj *v1alpha1.PostgresCluster) error {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		pod, _, err := f.findPrimary(ctx)
		if err == nil && obj.Status.Primary != pod.Name {
			err = fmt.Errorf("it names %q, and %s holds the Lease", obj.Status.Primary, pod.Name)
		}
		if err == nil && !meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.ConditionAvailable) {
			err = errors.New("it is not Available")
		}
		return err
	})
}

// otherNode is a node that no cut of this one concerns.
func (c *cluster) otherNode(node string) string {
	c.t.Helper()
	var nodes corev1.NodeList
	must(c.t, env.client.List(c.t.Context(), &nodes), "list the nodes")
	for i := range nodes.Items {
		if nodes.Items[i].Name != node {
			return nodes.Items[i].Name
		}
	}
	c.t.Fatal("there is one node only")
	return ""
}

// checkWrites pauses the client and compares what was acknowledged with what every
// member has, and the content of all members with each other. It returns how many
// writes were lost since the last check.
func (f *failover) checkWrites() int {
	f.t.Helper()
	defer f.w.pause()()
	primary := f.primaryPod().Name
	f.awaitCaughtUp(primary)
	writes := f.history.Writes(0)
	if err := writehistory.CheckOnePrimary(writes, f.history.Elections()); err != nil {
		f.t.Errorf("two primaries: %v", err)
	}
	losses, err := writehistory.FindLosses(writes, f.keptRows(primary), f.currentLeadership().timeline)
	if err != nil {
		f.t.Errorf("on %s: %v", primary, err)
	}
	contents := map[string]map[string]string{}
	for _, pod := range f.listPods() {
		contents[pod.Name] = f.readContent(pod.Name)
	}
	if err := writehistory.CompareContent(contents); err != nil {
		f.t.Errorf("the members differ: %v", err)
	}
	before := f.lost
	f.lost = writehistory.CountLost(losses)
	return f.lost - before
}

// checkNothingLost is checkWrites after an orderly change.
func (f *failover) checkNothingLost() {
	f.t.Helper()
	if lost := f.checkWrites(); lost != 0 {
		f.t.Errorf("%d acknowledged writes are lost, though nothing was cut off", lost)
	}
}

// awaitCaughtUp waits until every other member streams from the primary and has
// replayed what that has now. A former primary has as much WAL until it is rewound, and
// receives nothing.
func (f *failover) awaitCaughtUp(primary string) {
	f.t.Helper()
	var position string
	eventually(f.t, failoverTimeout, "the primary answers", func(ctx context.Context) (err error) {
		position, err = runLocalQuery(ctx, f.namespace, primary, "app", "select pg_current_wal_flush_lsn()")
		return err
	})
	for _, pod := range f.listPods() {
		if pod.Name == primary {
			continue
		}
		eventually(f.t, readyTimeout, pod.Name+" has everything", func(ctx context.Context) error {
			out, err := runLocalQuery(ctx, f.namespace, pod.Name, "app", fmt.Sprintf("select pg_is_in_recovery() and pg_last_wal_replay_lsn() >= '%s' and exists (select from pg_stat_wal_receiver)", position))
			if err == nil && out != "t" {
				err = fmt.Errorf("it has not replayed %s", position)
			}
			return err
		})
	}
}

// readContent is a checksum of each table of a member, over its rows in order.
func (f *failover) readContent(pod string) map[string]string {
	f.t.Helper()
	query := func(q string) string {
		out, err := runLocalQuery(f.t.Context(), f.namespace, pod, "app", q)
		must(f.t, err, pod+": "+q)
		return out
	}
	sums := map[string]string{}
	for table := range strings.FieldsSeq(query("select quote_ident(relname) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1")) {
		sums[table] = query("select count(*) || ':' || md5(coalesce(string_agg(t::text, ',' order by t::text), '')) from public." + table + " t")
	}
	return sums
}

// requestSwitchover annotates the cluster.
func (f *failover) requestSwitchover(id, pod string) {
	f.t.Helper()
	must(f.t, f.annotateSwitchover(f.t.Context(), id, pod), "request the switchover")
}

func (f *failover) annotateSwitchover(ctx context.Context, id, pod string) error {
	return f.annotate(ctx, annotationSwitchover, id+"@"+pod)
}

// annotate sets an annotation of the cluster.
func (f *failover) annotate(ctx context.Context, name, value string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	if err != nil {
		return err
	}
	obj := &v1alpha1.PostgresCluster{}
	obj.Namespace, obj.Name = f.namespace, f.name
	return env.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body), client.FieldOwner("e2e"))
}

// annotationSwitchover requests that another member leads: ID@POD.
const annotationSwitchover = "holdfast.dev/switchover"
