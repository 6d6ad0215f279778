//go:build e2e && soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// TestSoakPlan compares what kubectl holdfast plan says of twenty edits and more of each
// kind with what happens when they are made: which pods end and begin, in which order, which
// volumes grow, come and go, how often another member leads, how often writes pause, and what
// is refused. It prints how long each plan took, and each pause beside the range that was
// quoted. No plan may send more than reads and dry runs.
func TestSoakPlan(t *testing.T) {
	runTogether(t, []part{
		{"PlanPostgres", func(t *testing.T) { followEdits(t, plannedPostgres(t)) }},
		{"PlanEtcd", func(t *testing.T) { followEdits(t, plannedEtcd(t)) }},
		{"PlanDatabase", func(t *testing.T) { followEdits(t, plannedDatabase(t)) }},
		{"MySQLPlan", func(t *testing.T) { followEdits(t, plannedMySQL(t)) }},
	})
}

// planTarget is how long a plan of one cluster may take before it counts as slow.
const planTarget = 2 * time.Second

// planComparison collects what is printed of a kind's edits.
type planComparison struct {
	rows                 []string
	asPlanned, edits     int
	slow                 int
	slowest, plansLasted time.Duration
	// inside and outside are how many pauses of writes were in the range that was quoted;
	// of the first of an event, none was.
	inside, outside int
	// gaps are those of a client's writes in an edit with one pause, and bounded those that
	// were no longer than quoted and serviceDelay.
	gaps, bounded int
}

// followEdits creates what is declared, makes one edit after the other, and deletes it.
func followEdits(t *testing.T, p plannedCluster) {
	from := time.Now()
	c := newCommitted(t, p)
	if p.writes {
		c.writer = c.startWriter()
	}
	var r planComparison
	t.Cleanup(func() { t.Logf("%s: %s", c.declares, r.describe()) })
	for i, e := range p.edits {
		r.edits++
		made := false
		asPlanned := t.Run(fmt.Sprintf("%02d_%s", i+1, e.testName()), func(t *testing.T) {
			part := *c
			part.subject = c.withTest(t)
			part.makeEdit(e, &r)
			c.spec, c.requests = part.spec, part.requests
			made = true
		})
		if asPlanned {
			r.asPlanned++
		}
		if !made {
			return // what follows would fail, too
		}
	}
	if p.writes {
		checkOnlyDryRuns(t, c.namespace, from)
		r.checkPauses(t)
		return
	}
	t.Run("deletion", func(t *testing.T) {
		part := *c
		part.subject = c.withTest(t)
		part.planDeletion(&r)
	})
	checkOnlyDryRuns(t, c.namespace, from)
}

// describe is what is printed at the end.
func (r *planComparison) describe() string {
	return fmt.Sprintf("%d of %d edits as planned; %d plans took more than %s, the slowest %.2f s, all %.1f s; %d of %d pauses were in the range that was quoted, and %d of %d clients wrote again %s after it at most\n%s",
		r.asPlanned, r.edits, r.slow, planTarget, r.slowest.Seconds(), r.plansLasted.Seconds(), r.inside, r.inside+r.outside, r.bounded, r.gaps, serviceDelay, strings.Join(r.rows, "\n"))
}

// checkOnlyDryRuns reads from the audit log that plans of a namespace sent nothing but reads
// and dry runs.
func checkOnlyDryRuns(t *testing.T, namespace string, from time.Time) {
	t.Helper()
	dry := 0
	for _, r := range auditRequests(t, from, " kubectl-holdfast$", true) {
		if r.Namespace != namespace || !r.isWrite() {
			continue
		}
		dry += r.Count
		if !r.DryRun {
			t.Errorf("a plan sends %s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
		}
	}
	if dry == 0 {
		t.Error("the audit log shows no dry run of a plan: it proves nothing")
	}
	t.Logf("the audit log has %d dry runs of plans", dry)
}

// committed is a cluster, or a Database, that is declared as Git tools declare it.
type committed struct {
	*subject
	// declares is the kind of what is declared: the cluster's own, or Database.
	declares string
	spec     map[string]any
	requests map[string]string
	// writer is a client that writes all the time; nil for none.
	writer *writer
}

// gitManager applies what is committed.
const gitManager = "kustomize-controller"

func newCommitted(t *testing.T, p plannedCluster) *committed {
	t.Helper()
	c := &committed{subject: followSubject(t, p.kind, newNamespace(t, ""), orders), declares: p.declares}
	c.spec = specOf(t, append(p.spec, fmt.Sprintf("replicas: %d", p.members))...)
	must(t, c.apply(c.manifest(c.spec, nil)), "create what is declared")
	c.waitReady()
	return c
}

// manifest is what is declared with an edit.
func (c *committed) manifest(spec map[string]any, requests map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": maps.Clone(spec)}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind(c.declares)
	u.SetNamespace(c.namespace)
	u.SetName(c.name)
	u.SetAnnotations(requests)
	return u
}

// namesake is a cluster of another kind with the same name.
func (c *committed) namesake(kind string) *unstructured.Unstructured {
	u := c.manifest(specOf(c.t, `storage: {size: 1Gi}, replicas: 1`, unsaved), nil)
	u.SetKind(kind)
	version := postgres.line
	if kind == etcd.name {
		version = "3.6"
	}
	must(c.t, unstructured.SetNestedField(u.Object, version, "spec", "version"), "write the manifest")
	return u
}

// apply is what a Git tool does with a commit.
func (c *committed) apply(u *unstructured.Unstructured) error {
	c.t.Helper()
	body, err := u.MarshalJSON()
	must(c.t, err, "marshal the manifest")
	return env.client.Patch(c.t.Context(), u.DeepCopy(), client.RawPatch(types.ApplyPatchType, body),
		client.ForceOwnership, client.FieldOwner(gitManager), client.FieldValidation(metav1.FieldValidationStrict))
}

// edited are the spec and the requests with an edit.
func (c *committed) edited(e edit) (map[string]any, map[string]string) {
	c.t.Helper()
	spec, requests := maps.Clone(c.spec), maps.Clone(c.requests)
	if e.spec != "" {
		maps.Copy(spec, specOf(c.t, e.spec))
		maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil })
	}
	if e.switchover != "" {
		if requests == nil {
			requests = map[string]string{}
		}
		requests[v1alpha1.AnnotationSwitchover] = e.switchover
	}
	return spec, requests
}

// timedPlan is a plan and how long it took.
type timedPlan struct {
	planned
	took time.Duration
}

// plan runs the plugin on a manifest, as CI does. The cluster is at rest.
func (c *committed) plan(code int, manifest string, flags ...string) timedPlan {
	c.t.Helper()
	began := time.Now()
	stdout, stderr, got := c.runPlugin(manifest, append([]string{"plan", "-f", "-", "-o", "json"}, flags...)...)
	p := timedPlan{took: time.Since(began)}
	if err := json.Unmarshal([]byte(stdout), &p.planned); err != nil || got != code || len(p.Clusters) != 1 {
		c.t.Fatalf("the plan: exit code %d, want %d: %v\n%s%s", got, code, err, stdout, stderr)
	}
	if n := len(p.Clusters[0].UnderWay); n > 0 {
		c.t.Errorf("%d steps are under way in a cluster at rest: %+v", n, p.Clusters[0].UnderWay)
	}
	return p
}

// makeEdit plans an edit, makes it, and compares.
func (c *committed) makeEdit(e edit, r *planComparison) {
	c.t.Helper()
	if c.spec["suspend"] != true {
		c.waitReady()
	}
	if e.claims > 0 {
		c.limitClaims(e.claims)
	}
	spec, requests := c.edited(e)
	next := c.manifest(spec, requests)
	if e.other != "" {
		next = c.namesake(e.other)
	}
	manifest, err := next.MarshalJSON()
	must(c.t, err, "marshal the manifest")
	code := 1
	switch {
	case e.refused != "":
		code = 3
	case e.nothing:
		code = 0
	}
	before := c.readDeclared()
	p := c.plan(code, string(manifest))
	if after := c.readDeclared(); after != before {
		c.t.Errorf("the plan changed the object: %s, before %s", after, before)
	}
	r.addPlan(p)
	row := fmt.Sprintf("%-38s plan %.2f s", e.name, p.took.Seconds())
	switch {
	case e.refused != "":
		c.checkRefused(e, p, next)
	case e.nothing:
		if p.Clusters[0].Action != "no change" {
			c.t.Errorf("no edit is planned as %+v", p)
		}
	default:
		row += c.checkMade(e, p, next, r)
		c.spec, c.requests = spec, requests
	}
	r.rows = append(r.rows, row)
}

// addPlan counts how long a plan took.
func (r *planComparison) addPlan(p timedPlan) {
	r.plansLasted += p.took
	r.slowest = max(r.slowest, p.took)
	if p.took > planTarget {
		r.slow++
	}
}

// readDeclared is the identity of what is declared, its generation and its annotations.
func (c *committed) readDeclared() string {
	c.t.Helper()
	u := c.manifest(nil, nil)
	must(c.t, env.client.Get(c.t.Context(), c.nameOf(""), u), "read what is declared")
	return fmt.Sprint(u.GetUID(), " ", u.GetGeneration(), " ", u.GetAnnotations())
}

// quotaOfClaims is the quota that limitClaims makes.
func (c *committed) quotaOfClaims() *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "full"}}
}

// limitClaims has the namespace take no more claims than these.
func (c *committed) limitClaims(most int32) {
	c.t.Helper()
	quota := c.quotaOfClaims()
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: *resource.NewQuantity(int64(most), resource.DecimalSI)}
	must(c.t, env.client.Create(c.t.Context(), quota), "create a quota")
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		must(c.t, client.IgnoreNotFound(env.client.Delete(ctx, c.quotaOfClaims())), "delete the quota")
	})
	eventually(c.t, revertTimeout, "the quota is in force", func(ctx context.Context) error {
		err := env.client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
		if err == nil && quota.Status.Used.Name(corev1.ResourcePersistentVolumeClaims, resource.DecimalSI).Value() == 0 {
			err = fmt.Errorf("used: %v", quota.Status.Used)
		}
		return err
	})
}
