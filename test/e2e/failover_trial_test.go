//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/netns"
	"github.com/holdfast-db/holdfast/test/podprocess"
	"github.com/holdfast-db/holdfast/test/writehistory"
)

// trial is a cluster of any kind whose primary changes under a client that writes.
type trial struct {
	c       *subject
	db      failoverDatabase
	history *writehistory.Recorder
	w       *rowWriter
	// inside counts the clients that were started in members' pods.
	inside int
	// lost is how many acknowledged writes were lost so far, of all clients.
	lost int
	// measured are the events so far, of all parts of the test.
	measured *[]measurement
	// identifier of the cluster, which stays.
	identifier string
	// created is how long its creation took; 0 where that was not measured.
	created time.Duration
	// startOperator starts the operator again; nil while it runs.
	startOperator func()
}

// failoverDatabase is how the tests of failovers get at a kind's primary and its rows.
type failoverDatabase interface {
	// readLeadership is who leads, by what the members say to the API server.
	readLeadership(ctx context.Context, c *subject) (leadership, error)
	// newRows opens connections of an application to an address.
	newRows(c *subject, address string) openRows
	// awaitCaughtUp waits until every other member follows the primary and has what that
	// has now.
	awaitCaughtUp(c *subject, primary string)
	// keptRows are the numbers that a member has, by client.
	keptRows(c *subject, pod string) map[string][]int
	// readContent is a checksum of each table of a member.
	readContent(c *subject, pod string) map[string]string
	// losesNothing says that a majority has what is acknowledged, so that no loss of a
	// primary loses any of it, and one that is cut off acknowledges nothing.
	losesNothing() bool
}

// leadership is who leads. The numbers are those of the Lease; of a kind whose members
// elect without one they are 0.
type leadership struct {
	holder         types.UID
	term, timeline int64
}

// checkFollows says why one leadership does not follow another one.
func (l leadership) checkFollows(before leadership) error {
	if l.holder == before.holder || before.term > 0 && l.term <= before.term {
		return fmt.Errorf("term %d of %s, before term %d of %s", l.term, l.holder, before.term, before.holder)
	}
	return nil
}

// newTrial starts the client on a cluster that is ready.
func newTrial(c *subject, db failoverDatabase) *trial {
	c.t.Helper()
	identifier := c.waitReady().CommonStatus().SystemIdentifier
	f := &trial{c: c, db: db, history: writehistory.NewRecorder(), measured: &[]measurement{}, identifier: identifier}
	f.w = f.startWriterThrough(c.otherNode(f.leadingPod().Spec.NodeName))
	return f
}

// runPart runs a part of the test on the same cluster.
func (f *trial) runPart(t *testing.T, name string, run func(*trial)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		part := *f
		part.c = f.c.withTest(t)
		defer func() { f.inside, f.lost = part.inside, part.lost }()
		run(&part)
	})
}

// createUnwatched creates a cluster whose status is not followed: no watch survives an API
// server that stands still.
func createUnwatched(t *testing.T, k *kind, replicas int32, spec ...string) *subject {
	t.Helper()
	needKind(t, k)
	c := unwatched(t, k)
	c.createCluster(replicas, spec...)
	return c
}

func unwatched(t *testing.T, k *kind) *subject {
	t.Helper()
	return &subject{
		t: t, kind: k, namespace: newNamespace(t, ""), name: orders, operator: installed,
		history: &history{changed: make(chan struct{}, 1), rolledOut: map[string]bool{}},
	}
}

// startWriterThrough writes through the cluster's -rw Service from a node.
func (f *trial) startWriterThrough(node string) *rowWriter {
	f.c.t.Helper()
	w := f.newRowWriter(viaService, f.serviceAddress())
	w.enterNode(f.c.t, node)
	eventually(f.c.t, serviceTimeout, "the table is made through the Service", w.makeTable)
	w.start(f.c.t, w.writeRows, w.tryConnections)
	w.goesOn(f.c.t)
	return w
}

// startWriterInside writes in the network of a member's pod to its own address: no cut
// cable is between the two. It is no process of the pod, so no fence ends it.
func (f *trial) startWriterInside(pod *corev1.Pod) *rowWriter {
	f.c.t.Helper()
	f.inside++
	w := f.newRowWriter(fmt.Sprintf("inside-%d", f.inside), pod.Status.PodIP)
	// By one of its processes, which may end before its network is opened.
	eventually(f.c.t, failoverTimeout, "the pod's network is opened", func(context.Context) error {
		path, err := podprocess.NetworkNamespace(podprocess.Proc, string(pod.UID))
		if err == nil {
			w.from, err = netns.Open(path)
		}
		return err
	})
	w.start(f.c.t, w.writeRows)
	w.goesOn(f.c.t)
	return w
}

// serviceAddress is that of the Service through which applications write.
func (f *trial) serviceAddress() string {
	f.c.t.Helper()
	var service corev1.Service
	f.c.readObject(&service, f.c.name+f.c.kind.entry)
	return service.Spec.ClusterIP
}

func (f *trial) newRowWriter(client, address string) *rowWriter {
	f.c.t.Helper()
	return &rowWriter{client: client, open: f.db.newRows(f.c, address), history: f.history}
}

func (f *trial) currentTerm() leadership {
	f.c.t.Helper()
	l, err := f.db.readLeadership(f.c.t.Context(), f.c)
	must(f.c.t, err, "read who leads")
	return l
}

// findLeadingPod is the pod that leads.
func (f *trial) findLeadingPod(ctx context.Context) (*corev1.Pod, leadership, error) {
	l, err := f.db.readLeadership(ctx, f.c)
	if err != nil {
		return nil, l, err
	}
	pod, err := f.c.findHolder(ctx, l)
	return pod, l, err
}

// findHolder is the member's pod that leads.
func (c *subject) findHolder(ctx context.Context, l leadership) (*corev1.Pod, error) {
	pods, err := memberPods(ctx, c.namespace, c.name)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pods[i].UID == l.holder {
			return &pods[i], nil
		}
	}
	return nil, fmt.Errorf("term %d is held by %q, which is no member's pod", l.term, l.holder)
}

// leadingPod waits for a pod that leads.
func (f *trial) leadingPod() *corev1.Pod {
	f.c.t.Helper()
	var pod *corev1.Pod
	eventually(f.c.t, failoverTimeout, "a pod leads", func(ctx context.Context) (err error) {
		pod, _, err = f.findLeadingPod(ctx)
		return err
	})
	return pod
}

// awaitSuccessor waits until another pod leads than that of an earlier term, and takes
// the client's writes. Role labels name it alone.
func (f *trial) awaitSuccessor(before leadership) *corev1.Pod {
	f.c.t.Helper()
	var pod *corev1.Pod
	var now leadership
	eventually(f.c.t, failoverTimeout, "another pod leads", func(ctx context.Context) (err error) {
		if pod, now, err = f.findLeadingPod(ctx); err == nil {
			err = now.checkFollows(before)
		}
		return err
	})
	if before.timeline > 0 && now.timeline <= before.timeline {
		f.c.t.Errorf("term %d reserved timeline %d, and term %d before it %d", now.term, now.timeline, before.term, before.timeline)
	}
	if now.timeline > 0 {
		f.w.writesOn(f.c.t, now.timeline)
	} else {
		f.w.goesOn(f.c.t)
	}
	eventually(f.c.t, failoverTimeout, "only "+pod.Name+" has the role primary", func(ctx context.Context) error {
		primaries, err := labelledPrimaries(ctx, f.c)
		if err == nil && (len(primaries) != 1 || primaries[0].Name != pod.Name) {
			err = fmt.Errorf("%d pods have", len(primaries))
		}
		return err
	})
	return pod
}

// labelledPrimaries are the pods that Services lead to as the primary.
func labelledPrimaries(ctx context.Context, c *subject) ([]corev1.Pod, error) {
	pods, err := memberPods(ctx, c.namespace, c.name)
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Labels[v1alpha1.LabelRole] != v1alpha1.RolePrimary }), err
}

// awaitReported waits until the status names the pod that leads, and all is well.
func (f *trial) awaitReported() {
	f.c.t.Helper()
	f.c.waitReady()
	f.c.waitFor(failoverTimeout, "status.primary names the pod that leads", func(obj v1alpha1.Cluster) error {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		pod, _, err := f.findLeadingPod(ctx)
		if err == nil && obj.CommonStatus().Primary != pod.Name {
			err = fmt.Errorf("it names %q, and %s leads", obj.CommonStatus().Primary, pod.Name)
		}
		if err == nil && !meta.IsStatusConditionTrue(obj.GetConditions(), v1alpha1.ConditionAvailable) {
			err = errors.New("it is not Available")
		}
		return err
	})
}

// leadBy has a certain member lead, and waits until all is well.
func (f *trial) leadBy(ordinal int) {
	f.c.t.Helper()
	if f.leadingPod().Name != f.c.podName(ordinal) {
		before := f.currentTerm()
		f.c.requestSwitchover(fmt.Sprintf("e2e-%d", f.history.Now()), f.c.podName(ordinal))
		f.awaitSuccessor(before)
	}
	f.awaitReported()
}

// expectNoWrites lets time pass in which another member could have been elected.
func (f *trial) expectNoWrites(period time.Duration) {
	f.c.t.Helper()
	since := f.history.Now()
	time.Sleep(period)
	for _, row := range f.history.Writes(since) {
		if row.Acknowledged && row.Sent >= since {
			f.c.t.Errorf("write %d of %s is acknowledged by %s on timeline %d while no member may lead", row.Number, row.Client, row.Server, row.Timeline)
			return
		}
	}
}

// chooseReplica is a pod that does not lead.
func (f *trial) chooseReplica() *corev1.Pod {
	f.c.t.Helper()
	primary := f.leadingPod()
	for _, p := range f.c.listPods() {
		if p.UID != primary.UID {
			return p.DeepCopy()
		}
	}
	f.c.t.Fatal("there is no replica")
	return nil
}

// otherNode is a node that no cut of this one concerns.
func (c *subject) otherNode(node string) string {
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
func (f *trial) checkWrites() int {
	f.c.t.Helper()
	defer f.w.pause()()
	primary, now := f.leadingPod().Name, f.currentTerm()
	f.db.awaitCaughtUp(f.c, primary)
	writes := f.history.Writes(0)
	if now.timeline > 0 {
		if err := writehistory.CheckOnePrimary(writes, f.history.Elections()); err != nil {
			f.c.t.Errorf("two primaries: %v", err)
		}
	}
	losses, err := writehistory.FindLosses(writes, f.db.keptRows(f.c, primary), now.timeline)
	if err != nil {
		f.c.t.Errorf("on %s: %v", primary, err)
	}
	contents := map[string]map[string]string{}
	for _, pod := range f.c.listPods() {
		contents[pod.Name] = f.db.readContent(f.c, pod.Name)
	}
	if len(contents) > 1 { // one member alone has no other to be compared with
		if err := writehistory.CompareContent(contents); err != nil {
			f.c.t.Errorf("the members differ: %v", err)
		}
	}
	before := f.lost
	f.lost = writehistory.CountLost(losses)
	return f.lost - before
}

// endEvent notes what the clients saw of an event, waits until all is well, and checks
// all writes. After an orderly change none may be lost, nor of a database that loses none.
//
// A gap that the times of the members' agreement do not explain is logged, with what the
// members wrote.
func (f *trial) endEvent(event string, since time.Duration, orderly bool) (gap time.Duration) {
	f.c.t.Helper()
	f.w.goesOn(f.c.t)
	m := measurement{event: event, gap: f.history.LongestGap(since, viaService), refused: f.history.LongestRefusal(since)}
	if f.startOperator != nil {
		m.event += withoutOperatorSuffix
		f.startOperator()
		f.startOperator = nil
	}
	f.awaitReported()
	f.db.awaitCaughtUp(f.c, f.leadingPod().Name)
	m.whole = f.history.Now() - since
	if now := f.c.getCluster().CommonStatus().SystemIdentifier; now != f.identifier {
		f.c.t.Errorf("%s: other data was made: it is %s, before %s", m.event, now, f.identifier)
	}
	if m.lost = f.checkWrites(); m.lost > 0 && (orderly || f.db.losesNothing()) {
		f.c.t.Errorf("%s: %d acknowledged writes are lost", m.event, m.lost)
	}
	*f.measured = append(*f.measured, m)
	if m.gap > unexplainedGap {
		f.c.t.Logf("%s: no write was acknowledged for %s", m.event, m.gap)
		dumpNamespace(f.c.t, f.c.namespace)
	}
	return m.gap
}

// requestSwitchover annotates the cluster.
func (c *subject) requestSwitchover(id, pod string) {
	c.t.Helper()
	must(c.t, c.annotateSwitchover(c.t.Context(), id, pod), "request the switchover")
}

func (c *subject) annotateSwitchover(ctx context.Context, id, pod string) error {
	return c.annotate(ctx, v1alpha1.AnnotationSwitchover, id+"@"+pod)
}

// annotate sets an annotation of the cluster.
func (c *subject) annotate(ctx context.Context, name, value string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	if err != nil {
		return err
	}
	obj := c.kind.empty()
	obj.SetNamespace(c.namespace)
	obj.SetName(c.name)
	return env.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body), client.FieldOwner("e2e"))
}
