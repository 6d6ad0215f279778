//go:build soak

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	// listenPeriod is longer than the ten minutes in which members report what they measured.
	listenPeriod = 16 * time.Minute
	// podMonitorInterval is between two scrapes.
	podMonitorInterval = 15 * time.Second
	// insightsInterval is the least time between two writes of status.insights.
	insightsInterval = 10 * time.Minute
)

// steadyBurst reads and writes by keys, and forces no checkpoint.
var steadyBurst = []string{
	"do $$ begin for i in 1..200 loop update steady_load set v = v + 1 where id = i; perform v from steady_load where id = 5 * i; end loop; end $$",
	"insert into steady_log select g, repeat('x', 100) from generate_series(1, 200) g; delete from steady_log",
}

// TestSoakSteadyClusterWritesNothing: three members with mode Apply, scraped as a PodMonitor
// does, under a steady load. For a quarter of an hour neither the operator nor the agents
// write or read an object of it, but the agents the Lease of the primary, and the operator
// status.insights: as often as that says, and at most once in ten minutes. It is the
// installed operator, with the arguments that it has: --events-addr is one only if they say so.
func TestSoakSteadyClusterWritesNothing(t *testing.T) {
	needLocalCluster(t)
	begin := time.Now()
	c := newCluster(t, 3, func(pg *v1alpha1.PostgresCluster) {
		pg.Spec.Tuning = v1alpha1.TuningSpec{Mode: v1alpha1.TuningApply}
		pg.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")}
	})
	c.waitReady()
	c.runSQL(leading, "create table steady_load as select g as id, 0 as v from generate_series(1, 1000) g; alter table steady_load add primary key (id); create table steady_log (id int, v text); analyze")
	load := c.startSteadyLoad(steadyBurst)
	server := startPrometheus(t, c.namespace, podMonitorInterval, nil)
	deployment, err := installed.getDeployment(t.Context())
	must(t, err, "read the operator's Deployment")
	t.Logf("the operator's arguments are %q", deployment.Spec.Template.Spec.Containers[0].Args)
	time.Sleep(4 * settlePeriod) // Kubernetes' own controllers follow the pods, and are scraped

	bursts, mark, stored := load.count(), c.markPlace(), c.storedVersions()
	last := c.getCluster()
	from := time.Now()
	time.Sleep(listenPeriod)
	operator, agents := c.requestsSince(from, installed.accounts()), c.requestsSince(from, "^system:serviceaccount:"+c.namespace+":")
	changes := c.sinceMark(mark)

	period := time.Since(from)
	recorded := c.checkInsightsOnly(last, changes)
	if most := int(period/insightsInterval) + 1; recorded > most {
		t.Errorf("status.insights was written %d times in %s, at most %d times is promised", recorded, period, most)
	}
	t.Logf("in %s the operator asked for objects of the namespace:\n%s", period.Round(time.Second), formatTable(operator))
	for _, r := range operator {
		if r.Verb != "patch" || r.Resource != "postgresclusters.holdfast.dev/status" || r.Count > recorded {
			t.Errorf("the operator asked, and insights were recorded %d times:\n%s", recorded, formatTable([]auditRow{r}))
		}
	}
	t.Logf("the agents asked:\n%s", formatTable(agents))
	renewals := 0
	for _, r := range agents {
		if !strings.HasPrefix(r.Resource, "leases.") || r.Name != c.name+postgres.lease || r.Verb != "get" && r.Verb != "update" && r.Verb != "watch" {
			t.Errorf("the agents asked:\n%s", formatTable([]auditRow{r}))
		}
		if r.isWrite() {
			renewals += r.Count
		}
	}
	if diff := cmp.Diff(stored, c.storedVersions()); diff != "" {
		t.Errorf("objects changed (-before +after):\n%s", diff)
	}

	// The world was not still, and what was listened to is what was meant.
	if renewals == 0 || !slices.ContainsFunc(c.requestsSince(begin, installed.accounts()), auditRow.isWrite) {
		t.Error("the audit log shows no renewal of the Lease, or none of the writes that made the cluster: it proves nothing")
	}
	if now, least := load.count(), bursts+int(period/(4*loadInterval)); now < least {
		t.Errorf("the load had %d bursts after %d", now, bursts)
	}
	scrapes, err := server.Query(t.Context(), fmt.Sprintf(`sum by (pod) (sum_over_time(up{namespace=%q}[%ds]))`, c.namespace, int(period.Seconds())))
	must(t, err, "count the scrapes")
	t.Logf("scrapes that were answered: %v", scrapes)
	if len(scrapes) != 3 {
		t.Errorf("members scraped: %v", scrapes)
	}
	for _, s := range scrapes {
		if float64(s.Value) < 0.8*period.Seconds()/podMonitorInterval.Seconds() {
			t.Errorf("%v was scraped %v times in %s", s.Metric, s.Value, period)
		}
	}
	must(t, load.stop(), "run the load")
}

// requestsSince are those of accounts for objects of the cluster's namespace.
func (c *cluster) requestsSince(from time.Time, accounts string) []auditRow {
	c.t.Helper()
	return slices.DeleteFunc(auditRequests(c.t, from, accounts, true), func(r auditRow) bool { return r.Namespace != c.namespace })
}

// checkInsightsOnly goes through the changes of the cluster's object, and returns how many
// there were. Nothing but status.insights may be another.
func (c *cluster) checkInsightsOnly(before *v1alpha1.PostgresCluster, changes []v1alpha1.Cluster) int {
	c.t.Helper()
	for _, change := range changes {
		was, is := before.DeepCopy(), asPostgres(change).DeepCopy()
		before = is.DeepCopy()
		if i := is.Status.Insights; i == nil {
			c.t.Errorf("status.insights is gone: %+v", is.Status)
		} else if earlier := was.Status.Insights; earlier != nil && i.Time.Sub(earlier.Time.Time) < insightsInterval-time.Second {
			c.t.Errorf("status.insights was recorded at %s, and %s before", i.Time, i.Time.Sub(earlier.Time.Time))
		} else {
			c.t.Logf("recorded insights: %+v", i.Classes)
		}
		for _, obj := range []*v1alpha1.PostgresCluster{was, is} {
			obj.Status.Insights, obj.ManagedFields, obj.ResourceVersion, obj.TypeMeta = nil, nil, "", is.TypeMeta
		}
		if diff := cmp.Diff(was, is); diff != "" {
			c.t.Errorf("more than status.insights changed with nothing to do (-before +after):\n%s", diff)
		}
	}
	return len(changes)
}

// storedVersions are the resourceVersions of everything in the namespace that makes the
// cluster, but of the Leases, which agents renew, and of the cluster's own object.
func (c *cluster) storedVersions() map[string]string {
	c.t.Helper()
	versions := map[string]string{}
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &corev1.PodList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{},
		&corev1.ServiceAccountList{}, &discoveryv1.EndpointSliceList{}, &networkingv1.NetworkPolicyList{}, &policyv1.PodDisruptionBudgetList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	} {
		eventually(c.t, requestTimeout, "list objects", func(ctx context.Context) error { return env.client.List(ctx, list, client.InNamespace(c.namespace)) })
		must(c.t, meta.EachListItem(list, func(item apiruntime.Object) error {
			obj := item.(client.Object) //nolint:forcetypeassert // items of an ObjectList
			versions[fmt.Sprintf("%T %s", obj, obj.GetName())] = obj.GetResourceVersion()
			return nil
		}), "read the list")
	}
	return versions
}
