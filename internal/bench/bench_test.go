//go:build bench

package bench

import (
	"cmp"
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
	// steadyFor without a pass, the operator has nothing left to do.
	steadyFor = 5 * time.Second
	// steadyRounds of forced passes over every cluster.
	steadyRounds = 5
	// rounds of samples on a single cluster: drift that comes back more often
	// than three times is a contest, which a new process does not know.
	rounds = 5
	// inTime is how soon drift of one cluster should be put back.
	inTime = "p99 < 1 s"
)

// TestBenchOperator measures drift with one cluster and with more and more of them,
// and what the operator takes while nothing happens.
func TestBenchOperator(t *testing.T) {
	stages := clusterCounts(t)
	p := startPlane(t)
	binary, address := p.buildBinary(), freeAddress(t)
	p.startAgents()
	r := &report{t: t, counts: append([]int{1}, stages...), cells: map[cell]string{}}
	t.Cleanup(r.publishTable)

	r.count = 1
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
	r.addLatency(driftRow, inTime, alone)

	o, present := p.startOperator(binary, address), 1
	for _, many := range stages {
		r.count = many
		p.measureCreation(o, r, present, many)
		present = many
		p.measureIdle(o, r, many)
		p.measureSteady(o, r, many)
		var busy []time.Duration
		for i := range min(many, mostSamples) {
			busy = append(busy, p.measureDrift(i*many/min(many, mostSamples), "-rw"))
		}
		r.addLatency(driftRow, inTime, busy)
		p.measureStormLoad(o, r, many)
		r.addRow("Memory after that", mebibytes(o.readMetrics()["process_resident_memory_bytes"]), "")
		o.stop()
		o = p.measureRestart(r, binary, address, many)
	}
}

const driftRow = "Drift reverted"

// clusterCounts are the numbers of clusters to measure with, in ascending order.
func clusterCounts(t *testing.T) []int {
	t.Helper()
	text := cmp.Or(os.Getenv("BENCH_CLUSTERS"), "1000")
	var counts []int
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 2 || len(counts) > 0 && n <= counts[len(counts)-1] {
			t.Fatalf("BENCH_CLUSTERS=%s: numbers above 1, in ascending order, with commas between them", text)
		}
		counts = append(counts, n)
	}
	return counts
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
	p.awaitCondition(fmt.Sprintf("%d clusters are Ready", n), func(context.Context) bool { return p.progress.countReady() >= n })
}

// awaitPasses waits for a number of passes, and reads it so seldom that reading, which
// costs the more the more clusters there are, takes no more than a tenth of a core.
func (p *plane) awaitPasses(o *operator, what string, holds func(passes float64) bool) {
	p.t.Helper()
	p.awaitCondition(what, func(context.Context) bool {
		began := time.Now()
		held := holds(o.readMetrics()["controller_runtime_reconcile_total"])
		if !held {
			time.Sleep(10 * time.Since(began))
		}
		return held
	})
}

// awaitSteady waits until the operator makes no pass for a while, but for those that
// a few of thousands of clusters are due for at any time: each is looked at once an hour, and
// with 10,000 half a minute passes between two reads. It returns when that began.
func (p *plane) awaitSteady(o *operator) time.Time {
	p.t.Helper()
	last, since := -1.0, time.Now()
	few := float64(p.progress.countReady() / 50)
	p.awaitPasses(o, "no passes", func(passes float64) bool {
		if passes > last+few || last < 0 {
			last, since = passes, time.Now()
		}
		return time.Since(since) > steadyFor
	})
	return since
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
	r.addRow("Memory", mebibytes(after["process_resident_memory_bytes"]), "< 300 MiB with 1000")
	r.addRow("Live heap", mebibytes(before["go_memstats_heap_alloc_bytes"]), "")
	r.addRow("Memory of the API server", mebibytes(p.measureProcesses().of[apiServer].memory), "")
	began := time.Now()
	state := o.countSeries("holdfast_cluster_")
	took := time.Since(began)
	backups := o.countSeries("holdfast_backup_") + o.countSeries("holdfast_drill_")
	r.addRow("Series about the state of each cluster", fmt.Sprintf("%.1f", state/float64(many)), "12")
	r.addRow("Series about the backups of each cluster", fmt.Sprintf("%.1f", backups/float64(many)), "10")
	r.addRow("Scrape", took.Round(time.Millisecond).String(), "")
}

// measureSteady is what passes take that find nothing to do.
func (p *plane) measureSteady(o *operator, r *report, many int) {
	p.t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%d", many)}, Provisioner: "example.com/none"}
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
	r.addRow("Steady passes", fmt.Sprintf("%.0f", passes), "")
	r.addRow("Requests of these passes", asked.String(), "0")
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
	p.awaitPasses(o, "a pass over every cluster", func(passes float64) bool { return passes >= before+float64(many) })
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

// report is a table with a column for each number of clusters; what is measured before
// something fails stands in it.
type report struct {
	t      *testing.T
	counts []int
	// count is the number of clusters that there are now.
	count int
	rows  []string
	cells map[cell]string
	// targets of rows.
	targets map[string]string
}

// cell is a place in the table.
type cell struct {
	row   string
	count int
}

func (r *report) addRow(what, measured, target string) {
	r.t.Logf("%d clusters: %s: %s", r.count, what, measured)
	if !slices.Contains(r.rows, what) {
		r.rows = append(r.rows, what)
	}
	if r.targets == nil {
		r.targets = map[string]string{}
	}
	r.cells[cell{what, r.count}], r.targets[what] = measured, target
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
	head := []string{fmt.Sprintf("%d cores of %s, shared with the API server, etcd, the controller manager and the simulated members.", runtime.NumCPU(), runtime.GOARCH), ""}
	columns := []string{"clusters"}
	for _, n := range r.counts {
		columns = append(columns, strconv.Itoa(n))
	}
	columns = append(columns, "target")
	lines := append(head, formatRow(columns), "|"+strings.Repeat("---|", len(columns)))
	for _, what := range r.rows {
		row := []string{what}
		for _, n := range r.counts {
			row = append(row, r.cells[cell{what, n}])
		}
		lines = append(lines, formatRow(append(row, r.targets[what])))
	}
	text := strings.Join(lines, "\n") + "\n"
	r.t.Log("\n" + text)
	if file := os.Getenv("BENCH_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			r.t.Error(err)
		}
	}
}

func formatRow(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }
