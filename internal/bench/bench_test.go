//go:build bench

package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	// perNamespace clusters live together.
	perNamespace = 10
	// mostSamples of drift that are made one after the other.
	mostSamples = 300
	// steadyRounds of forced passes over every cluster.
	steadyRounds = 5
	// rounds of samples on a single cluster: drift that comes back more often
	// than three times is a contest, which a new process does not know.
	rounds = 5
	// inTime is how soon drift of one cluster should be put back.
	inTime = "p99 < 1 s"
)

// TestBenchOperator measures drift with one cluster and with many, and what
// the operator takes while nothing happens.
func TestBenchOperator(t *testing.T) {
	many := clusterCount(t)
	p := startPlane(t)
	binary, address := p.buildBinary(), freeAddress(t)
	p.startAgents()
	r := &report{t: t}
	t.Cleanup(r.publishTable)

	p.createClusters(0, 1)
	var alone []time.Duration
	for range rounds {
		o := p.startOperator(binary, address)
		p.awaitReady(1)
		time.Sleep(2 * time.Second) // its first pass over everything is no part of this
		for range 3 {
			for _, suffix := range []string{"-rw", "-ro", "-members"} {
				alone = append(alone, p.measureDrift(0, suffix))
			}
		}
		o.stop()
	}
	r.addLatency("Drift put back, 1 cluster", inTime, alone)

	o := p.startOperator(binary, address)
	began := time.Now()
	p.createClusters(1, many)
	p.awaitReady(many)
	r.addRow(fmt.Sprintf("%d clusters created, until all are Ready", many), time.Since(began).Round(time.Second).String(), "")
	p.awaitSteady(o)
	p.measureIdle(o, r, many)
	p.measureSteady(o, r, many)

	var busy []time.Duration
	for i := range min(many, mostSamples) {
		busy = append(busy, p.measureDrift(i*many/min(many, mostSamples), "-rw"))
	}
	r.addLatency(fmt.Sprintf("Drift put back, %d clusters", many), inTime, busy)
	r.addLatency(fmt.Sprintf("Drift of %d clusters at the same time", many), "", p.measureStorm(many))
	r.addRow("Memory after that", mebibytes(o.readMetrics()["process_resident_memory_bytes"])+" resident", "")
}

// clusterCount is how many there are in the end.
func clusterCount(t *testing.T) int {
	t.Helper()
	text := os.Getenv("BENCH_CLUSTERS")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 {
		t.Fatalf("BENCH_CLUSTERS=%s is no number above 1", text)
	}
	return n
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// clusterKey is the key of the cluster with a number.
func clusterKey(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: fmt.Sprintf("bench-%d", n/perNamespace), Name: fmt.Sprintf("orders-%d", n)}
}

// createClusters creates the clusters from one number up to another.
func (p *plane) createClusters(from, to int) {
	p.t.Helper()
	for n := from; n < to; n++ {
		name := clusterKey(n)
		if n%perNamespace == 0 {
			if err := p.client.Create(p.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name.Namespace}}); err != nil {
				p.t.Fatal(err)
			}
		}
		c := &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
			Spec:       v1alpha1.PostgresClusterSpec{Version: "17", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")}},
		}
		if err := p.client.Create(p.t.Context(), c); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *plane) awaitReady(n int) {
	p.t.Helper()
	p.awaitCondition(fmt.Sprintf("%d clusters are Ready", n), func(ctx context.Context) bool {
		var list v1alpha1.PostgresClusterList
		if err := p.client.List(ctx, &list); err != nil {
			p.t.Fatal(err)
		}
		count := 0
		for i := range list.Items {
			c := &list.Items[i]
			if c.Status.ObservedGeneration == c.Generation && conditions.IsTrue(c, v1alpha1.ConditionReady) {
				count++
			}
		}
		if count < n {
			time.Sleep(time.Second)
		}
		return count >= n
	})
}

// awaitSteady waits until the operator makes no pass for a while.
func (p *plane) awaitSteady(o *operator) {
	p.t.Helper()
	last, since := -1.0, time.Now()
	p.awaitCondition("no passes", func(context.Context) bool {
		if now := o.readMetrics()["controller_runtime_reconcile_total"]; now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 5*time.Second
	})
}

// measureIdle is what the operator takes while nothing happens.
func (p *plane) measureIdle(o *operator, r *report, many int) {
	p.t.Helper()
	o.collectGarbage()
	p.audit.takeRequests()
	before := o.readMetrics()
	time.Sleep(time.Minute)
	after := o.readMetrics()
	asked, watches := p.audit.takeRequests()
	r.addRow("CPU of a minute without changes", fmt.Sprintf("%.2f s", after["process_cpu_seconds_total"]-before["process_cpu_seconds_total"]), "")
	r.addRow("Requests of a minute without changes", asked.String(), "0")
	r.addRow("Watches opened again in that minute", watches.String(), "")
	r.addRow(fmt.Sprintf("Memory, %d clusters", many), fmt.Sprintf("%s resident, %s of it live heap",
		mebibytes(after["process_resident_memory_bytes"]), mebibytes(before["go_memstats_heap_alloc_bytes"])), "< 300 MiB")
	began := time.Now()
	series := o.countSeries("holdfast_cluster_")
	r.addRow(fmt.Sprintf("Scrape of %d clusters", many), fmt.Sprintf("%.1f series a cluster, %s", series/float64(many), time.Since(began).Round(time.Millisecond)), "12 series")
}

// measureSteady is what passes take that find nothing to do.
func (p *plane) measureSteady(o *operator, r *report, many int) {
	p.t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Provisioner: "example.com/none"}
	if err := p.client.Create(p.t.Context(), class); err != nil {
		p.t.Fatal(err)
	}
	p.awaitSteady(o)
	p.audit.takeRequests()
	before := o.readMetrics()
	for range steadyRounds {
		p.forcePass(o, class, many)
	}
	after := o.readMetrics()
	p.awaitSteady(o)
	asked, watches := p.audit.takeRequests()
	passes := after["controller_runtime_reconcile_total"] - before["controller_runtime_reconcile_total"]
	r.addRow(fmt.Sprintf("Requests of %.0f steady passes", passes), asked.String(), "0")
	r.addRow("Watches opened again meanwhile", watches.String(), "")
	r.addRow("CPU of a steady pass", fmt.Sprintf("%.2f ms", 1000*(after["process_cpu_seconds_total"]-before["process_cpu_seconds_total"])/passes), "")
	if file := os.Getenv("BENCH_CPU"); file != "" {
		profiled := o.profileCPU(file)
		for !profiled() {
			p.forcePass(o, class, many)
		}
	}
}

// forcePass forces one pass over every cluster: a StorageClass that changes makes all
// look again.
func (p *plane) forcePass(o *operator, class *storagev1.StorageClass, many int) {
	p.t.Helper()
	before := o.readMetrics()["controller_runtime_reconcile_total"]
	metav1.SetMetaDataAnnotation(&class.ObjectMeta, "bench", time.Now().String())
	if err := p.client.Update(p.t.Context(), class); err != nil {
		p.t.Fatal(err)
	}
	p.awaitCondition("a pass over every cluster", func(context.Context) bool {
		return o.readMetrics()["controller_runtime_reconcile_total"] >= before+float64(many)
	})
}

// port that a Service should have.
const port = 5432

// measureDrift changes a Service's port, and says how long after the answer a watch
// shows it back.
func (p *plane) measureDrift(n int, suffix string) time.Duration {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey(n).Namespace, Name: clusterKey(n).Name + suffix}}
	watching, err := p.client.Watch(ctx, &corev1.ServiceList{}, client.InNamespace(service.Namespace), client.MatchingFields{"metadata.name": service.Name})
	if err != nil {
		p.t.Fatal(err)
	}
	defer watching.Stop()
	began := p.patchService(ctx, service)
	drifted := false
	for event := range watching.ResultChan() {
		s, ok := event.Object.(*corev1.Service)
		if !ok {
			p.t.Fatalf("watch: %v", event.Object)
		}
		if s.Spec.Ports[0].Port != port {
			drifted = true
		} else if drifted {
			return time.Since(began)
		}
	}
	p.t.Fatal("the watch ended")
	return 0
}

func (p *plane) patchService(ctx context.Context, service *corev1.Service) time.Time {
	change := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/ports/0/port","value":15432}]`))
	if err := p.client.Patch(ctx, service, change, client.FieldOwner("kubectl-edit")); err != nil && ctx.Err() == nil {
		p.t.Error(err)
	}
	return time.Now()
}

// measureStorm changes a Service of every cluster as fast as eight clients can.
func (p *plane) measureStorm(many int) []time.Duration {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	// From now on: thousands of present ones would be more than a watch holds
	// back for a slow reader.
	now := &corev1.ServiceList{}
	if err := p.client.List(ctx, now, client.Limit(1)); err != nil {
		p.t.Fatal(err)
	}
	watching, err := p.client.Watch(ctx, &corev1.ServiceList{}, client.HasLabels{v1alpha1.LabelCluster},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer watching.Stop()
	var mu sync.Mutex
	patched := map[string]time.Time{}
	var numbers = make(chan int)
	for range 8 {
		go func() {
			for n := range numbers {
				service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey(n).Namespace, Name: clusterKey(n).Name + "-ro"}}
				at := p.patchService(ctx, service)
				mu.Lock()
				patched[service.Name] = at
				mu.Unlock()
			}
		}()
	}
	go func() {
		defer close(numbers)
		for n := range many {
			numbers <- n
		}
	}()
	drifted, back := map[string]bool{}, map[string]time.Time{}
	for event := range watching.ResultChan() {
		s, ok := event.Object.(*corev1.Service)
		if !ok || !strings.HasSuffix(s.Name, "-ro") {
			continue
		}
		if s.Spec.Ports[0].Port != port {
			drifted[s.Name] = true
		} else if drifted[s.Name] {
			back[s.Name] = time.Now()
		}
		if len(back) == many {
			break
		}
	}
	if len(back) < many {
		p.t.Fatalf("the watch ended after %d of %d", len(back), many)
	}
	var took []time.Duration
	mu.Lock()
	defer mu.Unlock()
	for name, at := range back {
		took = append(took, at.Sub(patched[name]))
	}
	return took
}

// report is a table; what is measured before something fails stands in it.
type report struct {
	t    *testing.T
	rows []string
}

func (r *report) addRow(what, measured, target string) {
	row := fmt.Sprintf("| %s | %s | %s |", what, measured, target)
	r.t.Log(row)
	r.rows = append(r.rows, row)
}

func (r *report) addLatency(what, target string, took []time.Duration) {
	slices.Sort(took)
	at := func(p float64) string {
		return took[min(len(took)-1, int(p*float64(len(took))))].Round(time.Millisecond).String()
	}
	r.addRow(what, fmt.Sprintf("p50 %s, p99 %s, longest %s of %d", at(.5), at(.99), took[len(took)-1].Round(time.Millisecond), len(took)), target)
}

// publishTable prints the table, and writes it where BENCH_REPORT says.
func (r *report) publishTable() {
	r.t.Helper()
	head := []string{fmt.Sprintf("%d cores of %s, shared with the API server, etcd, the controller manager and the simulated members.", runtime.NumCPU(), runtime.GOARCH),
		"", "| what | measured | target |", "|---|---|---|"}
	text := strings.Join(append(head, r.rows...), "\n") + "\n"
	r.t.Log("\n" + text)
	if file := os.Getenv("BENCH_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			r.t.Error(err)
		}
	}
}
