//go:build soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/dashboards"
	"github.com/holdfast-db/holdfast/test/prometheus"
)

const (
	// scrapeInterval is shorter than a PodMonitor's: the test does not wait for minutes.
	scrapeInterval = 5 * time.Second
	// divideFor shortens what alerts wait for, from an hour to a minute. Their expressions
	// stay as they are.
	divideFor = 60
	// panelsTimeout is for all panels to have data, once everything has happened.
	panelsTimeout = 5 * time.Minute
	// alertTimeout is for an alert to fire, or to go silent.
	alertTimeout = 6 * time.Minute
)

// TestSoakDashboards has Debian's Prometheus scrape the operator and a cluster of each kind,
// with Holdfast's own alerts. Every panel of every dashboard shows numbers, and five alerts
// fire for the fault that they are about, and go silent after it.
func TestSoakDashboards(t *testing.T) {
	needLocalCluster(t)
	f := newFleet(t)
	f.observe()
	t.Run("Panels", f.testPanels)
	t.Run("Alerts", f.testAlerts)
}

// fleet is a cluster of each kind in one namespace, and the Prometheus that scrapes them.
type fleet struct {
	t                     *testing.T
	namespace             string
	store                 *store
	postgres, mysql, etcd *subject
	server                *prometheus.Server
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	for _, k := range allKinds() {
		needKind(t, k)
	}
	f := &fleet{t: t, store: newStore(t, "", "4Gi")}
	f.namespace = newNamespace(t, "")
	f.store.giveKeys(f.namespace)
	f.postgres = createSubject(t, postgres, f.namespace, orders, 2, `parameters: {max_connections: "50", shared_preload_libraries: pg_stat_statements}`,
		"backup: {continuous: true, schedule: '* * * * *', verify: {schedule: '* * * * *'}, destination: "+f.store.destinationLine(bucket, "fleet")+"}")
	f.mysql = createSubject(t, mysql, f.namespace, "carts", 3)
	f.etcd = createSubject(t, etcd, f.namespace, "locks", 3)
	for _, c := range f.clusters() {
		c.waitReady()
	}
	leader := (&cluster{f.postgres}).podName(leading)
	_, err := runLocalQuery(t.Context(), f.namespace, leader, "postgres", "create extension pg_stat_statements")
	must(t, err, "create the extension")
	return f
}

func (f *fleet) clusters() []*subject { return []*subject{f.postgres, f.mysql, f.etcd} }

// observe starts the Prometheus, with Holdfast's own alerts.
func (f *fleet) observe() {
	f.t.Helper()
	rules, err := prometheus.ReadRules("../../config/prometheus/rules.yaml", divideFor)
	must(f.t, err, "read the alerts")
	f.server = startPrometheus(f.t, f.namespace, scrapeInterval, rules)
}

// testPanels writes, backs up, has a backup restored on trial and an owned object changed,
// and then asks for every query of every dashboard.
func (f *fleet) testPanels(t *testing.T) {
	f.postgres.withTest(t).waitFor(drillsTimeout, "a drill has passed", func(c v1alpha1.Cluster) error {
		if d := c.CommonStatus().Drill; d == nil || d.Result != v1alpha1.DrillPassed {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	var service corev1.Service
	f.postgres.readObject(&service, f.postgres.name+"-rw")
	must(t, mergePatch(`{"metadata":{"labels":{"app.kubernetes.io/name":"elsewhere"}}}`)(t.Context(), &service, "kubectl-edit"), "change an owned object")
	chosen := map[string]string{"postgresql": f.postgres.name, "mysql": f.mysql.name, "etcd": f.etcd.name}
	written := 0
	eventually(t, panelsTimeout, "every panel shows numbers", func(ctx context.Context) error {
		for _, c := range f.clusters() { // load, at each attempt
			written++
			c.kind.keepValue(c.withTest(t), strconv.Itoa(written))
			c.kind.keptValue(c.withTest(t))
		}
		var errs []error
		for _, d := range dashboards.All() {
			errs = append(errs, f.checkDashboard(ctx, d, chosen[d.File]))
		}
		return errors.Join(errs...)
	})
	f.recordScrapes(t)
	f.postgres.withTest(t).changeSpec("backup: {verify: {schedule: '0 0 1 1 *'}}") // drills take what the alerts' faults need
}

// drillsTimeout is for the first backup, and for a drill in a slot after it.
const drillsTimeout = 8 * time.Minute

// checkDashboard asks for every query of a dashboard, with the variables that a person would
// choose: the test's clusters, and all members.
func (f *fleet) checkDashboard(ctx context.Context, d dashboards.Dashboard, cluster string) error {
	preferred := dashboards.Chosen{"namespace": {f.namespace}}
	if cluster != "" {
		preferred["holdfast_cluster"] = []string{cluster}
	}
	chosen, err := d.Choose(ctx, f.server, preferred)
	if err != nil {
		return err
	}
	queries, err := d.Expand(chosen, "1m", "30m")
	if err != nil {
		return err
	}
	return dashboards.CheckData(ctx, f.server, queries)
}

// recordScrapes writes what was scraped last to the folder that HOLDFAST_RECORD_SCRAPES
// names, as the recordings of test/dashboards.
func (f *fleet) recordScrapes(t *testing.T) {
	t.Helper()
	folder := os.Getenv("HOLDFAST_RECORD_SCRAPES")
	if folder == "" {
		return
	}
	targets, err := listTargets(t.Context(), f.namespace)
	must(t, err, "list the targets")
	for _, target := range targets {
		name := target.Labels["pod"]
		if target.Labels["holdfast_cluster"] == "" {
			name = "operator"
		}
		text, err := env.kube.CoreV1().Pods(target.Labels["namespace"]).ProxyGet("http", target.Labels["pod"], operatorPort, "metrics", nil).DoRaw(t.Context())
		must(t, err, "scrape "+name)
		recording := strings.ReplaceAll(dashboards.TrimScrape(string(text)), f.namespace, "shop") // as the recordings' members
		must(t, os.WriteFile(filepath.Join(folder, name+".txt"), []byte(recording), 0o644), "record "+name)
	}
}

// alertCause makes an alert fire, for as long as its fault lasts.
type alertCause struct {
	alert string
	// labels that the alert has.
	labels map[string]string
	// begin the fault, and return what ends it.
	begin func(t *testing.T) (end func())
}

// testAlerts causes the fault of each alert, one after the other.
func (f *fleet) testAlerts(t *testing.T) {
	inNamespace := func(more ...string) map[string]string {
		labels := map[string]string{"namespace": f.namespace}
		for i := 0; i < len(more); i += 2 {
			labels[more[i]] = more[i+1]
		}
		return labels
	}
	for _, cause := range []alertCause{
		{"HoldfastMemberUnscraped", inNamespace("pod", f.etcd.podName(2)), f.dropScrapes},
		{"HoldfastStalled", map[string]string{"cluster_namespace": f.namespace, "holdfast_cluster": f.etcd.name, "reason": v1alpha1.ReasonInvalidParameter}, f.declareNonsense},
		{"HoldfastPostgresReplicationLag", inNamespace("pod", f.replicaOfPostgres()), f.pauseReplay},
		{"HoldfastPostgresConnectionsNearLimit", inNamespace("pod", f.postgres.podName(leading)), f.occupyConnections},
		{"HoldfastBackupOverdue", map[string]string{"cluster_namespace": f.namespace, "holdfast_cluster": f.postgres.name}, f.stopStore},
	} {
		t.Run(cause.alert, func(t *testing.T) {
			eventually(t, alertTimeout, cause.alert+" is silent before the fault", func(ctx context.Context) error { return f.expectAlert(ctx, cause, false) })
			end := cause.begin(t)
			eventually(t, alertTimeout, cause.alert+" fires", func(ctx context.Context) error { return f.expectAlert(ctx, cause, true) })
			end()
			eventually(t, alertTimeout, cause.alert+" is silent", func(ctx context.Context) error { return f.expectAlert(ctx, cause, false) })
		})
	}
}

// expectAlert says what is wrong where an alert does not fire, or does.
func (f *fleet) expectAlert(ctx context.Context, cause alertCause, want bool) error {
	firing, err := f.server.FiringAlerts(ctx)
	if err != nil {
		return err
	}
	fires := slices.ContainsFunc(firing[cause.alert], func(have model.LabelSet) bool {
		for name, value := range cause.labels {
			if string(have[model.LabelName(name)]) != value {
				return false
			}
		}
		return true
	})
	if fires != want {
		return fmt.Errorf("%s fires: %t; all that fire: %v", cause.alert, fires, firing)
	}
	return nil
}

func (f *fleet) replicaOfPostgres() string {
	f.t.Helper()
	return f.postgres.podName(1 - f.postgres.findLeading())
}

// dropScrapes loses what an etcd member answers to this machine, and nothing else.
func (f *fleet) dropScrapes(t *testing.T) func() {
	var pod corev1.Pod
	f.etcd.readObject(&pod, f.etcd.podName(2))
	// A socket of UDP sends nothing, and knows which of this machine's addresses it would use.
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "udp", net.JoinHostPort(pod.Status.PodIP, operatorPort))
	must(t, err, "find this machine's address")
	own, _, err := net.SplitHostPort(connection.LocalAddr().String())
	must(t, errors.Join(err, connection.Close()), "read this machine's address")
	return cutPod(t, &pod, outgoing, own)
}

// declareNonsense declares a parameter that etcd does not have.
func (f *fleet) declareNonsense(t *testing.T) func() {
	c := f.etcd.withTest(t)
	before := c.currentSpec()
	c.changeSpec(`parameters: {no-such-setting: "1"}`)
	return func() { c.restoreSpec(before); c.waitReady() }
}

// pauseReplay has a replica replay nothing, while the primary is written to.
func (f *fleet) pauseReplay(t *testing.T) func() {
	c := f.postgres.withTest(t)
	replica := c.ordinalOf(f.replicaOfPostgres())
	query := func(sql string) {
		_, err := runLocalQuery(t.Context(), c.namespace, c.podName(replica), "app", sql)
		must(t, err, sql)
	}
	query("select pg_wal_replay_pause()")
	c.kind.keepValue(c, "not replayed")
	return func() { query("select pg_wal_replay_resume()"); c.waitReady() }
}

// occupyConnections opens sessions that do nothing, nearly as many as there may be.
func (f *fleet) occupyConnections(t *testing.T) func() {
	c := &cluster{f.postgres.withTest(t)}
	pod := clientPodOf(newNamespace(t, "sessions-"), clientImage(t))
	const script = `for i in $(seq 50); do psql "$URI" -c 'select pg_sleep(3600)' & done; wait; sleep infinity`
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "URI", Value: c.connectionURI()}}
	startClient(t, pod)
	return func() {
		must(t, env.client.Delete(t.Context(), pod), "end the sessions")
		_, err := runLocalQuery(t.Context(), c.namespace, c.podName(leading), "app", "select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(3600)%' and pid <> pg_backend_pid()")
		must(t, err, "end what is left of the sessions")
	}
}

// stopStore keeps backups from being made.
func (f *fleet) stopStore(t *testing.T) func() {
	f.store.stopStore()
	return func() { f.store.startStore() }
}
