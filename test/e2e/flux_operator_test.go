//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	kustomizations "github.com/holdfast-db/holdfast/test/kustomization"
)

// What examples/flux declares.
const (
	shopNamespace = "shop"
	crdFile       = "config/crd/holdfast.dev_postgresclusters.yaml"
)

// fluxExample reads a file of examples/flux.
func fluxExample(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../examples/flux", file))
	must(t, err, "read the example")
	return objectsOf(t, data)
}

// uninstallOperator removes the operator but for its namespace and the CRDs, which
// other clusters need. At the end it is put back as it was.
func uninstallOperator(t *testing.T) {
	t.Helper()
	var removed []client.Object
	for _, obj := range renderFolder(t, "../../config/default") {
		if kind := obj.GetKind(); kind == "Namespace" || kind == "CustomResourceDefinition" {
			continue
		}
		was := liveObject(t, obj)
		was.SetManagedFields(nil)
		was.SetResourceVersion("")
		was.SetUID("")
		removed = append(removed, was)
	}
	t.Cleanup(func() {
		installed.releaseLease(t)
		takeAway(t, removed...)
		for _, obj := range removed {
			if err := env.client.Create(context.Background(), obj); err != nil {
				t.Errorf("put %s back: %v", obj.GetName(), err)
			}
		}
	})
	installed.releaseLease(t)
	takeAway(t, removed...)
}

// releaseLease ends the operator's pods while they still have the right to
// release their Lease: the next operator need not wait until it has expired.
func (o *operator) releaseLease(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operatorTimeout)
	defer cancel()
	err := o.setReplicas(ctx, 0)
	for err == nil {
		if err = o.checkReplicas(ctx, 0); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
			err = nil
		}
	}
	if client.IgnoreNotFound(err) != nil {
		t.Errorf("end the operator's pods: %v", err)
	}
}

// operatorKustomization is the example's, for the image that runs here and for
// clusters of these namespaces alone: others belong to the tests beside this one.
func operatorKustomization(t *testing.T, image string, watched ...string) *unstructured.Unstructured {
	t.Helper()
	u := fluxExample(t, "operator.yaml")[0]
	name, tag, _ := strings.Cut(image, ":")
	images := []any{map[string]any{"name": kustomizations.OperatorImage, "newName": name, "newTag": tag}}
	must(t, unstructured.SetNestedSlice(u.Object, images, "spec", "images"), "name the image")
	patches := []any{map[string]any{"target": map[string]any{"kind": "Deployment"}, "patch": string(limitPatch(watched))}}
	must(t, unstructured.SetNestedSlice(u.Object, patches, "spec", "patches"), "limit the operator")
	return u
}

// limitPatch is a JSON patch of the operator's Deployment, for some namespaces.
func limitPatch(watched []string) []byte {
	return fmt.Appendf(nil, `[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":%q}]`, watchFlag+strings.Join(watched, ","))
}

// runLimited has the installed operator run until the test ends, for clusters of
// these namespaces alone.
func (o *operator) runLimited(t *testing.T, watched ...string) {
	t.Helper()
	d, err := o.getDeployment(t.Context())
	must(t, err, "the operator's Deployment")
	all := slices.Clone(d.Spec.Template.Spec.Containers[0].Args)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if err := errors.Join(o.setReplicas(ctx, 0), o.patchArgs(ctx, all)); err != nil {
			t.Errorf("put the operator back: %v", err)
		}
	})
	must(t, o.patchArgs(t.Context(), append(slices.Clone(all), watchFlag+strings.Join(watched, ","))), "limit the operator")
	o.scaleTo(t, 1)
}

func (o *operator) patchArgs(ctx context.Context, args []string) error {
	d, err := o.getDeployment(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}})
	if err != nil {
		return err
	}
	return env.client.Patch(ctx, d, client.RawPatch(types.JSONPatchType, body), client.FieldOwner("kubectl"))
}

func installedImage(t *testing.T) string {
	t.Helper()
	d, err := installed.getDeployment(t.Context())
	must(t, err, "the operator's Deployment")
	return d.Spec.Template.Spec.Containers[0].Image
}

// fluxFromEmpty is the walk-through of docs/guides/flux.md: from no operator to
// an application's Job, in order, by dependsOn and wait alone.
func fluxFromEmpty(t *testing.T) {
	needFlux(t)
	sources := fluxExample(t, "sources.yaml")
	steps := []*unstructured.Unstructured{
		operatorKustomization(t, env.operatorImage, shopNamespace), fluxExample(t, "database.yaml")[0], fluxExample(t, "app.yaml")[0],
	}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shopNamespace}}
	all := []client.Object{steps[2], steps[1], steps[0], sources[0], sources[1], shop}
	takeAway(t, all...)
	uninstallOperator(t)
	t.Cleanup(func() {
		if t.Failed() {
			dumpNamespace(t, shopNamespace)
		}
		takeAway(t, all...)
	})

	c := followCluster(t, shopNamespace, orders)
	serves := func(ctx context.Context) error { return clusterServes(ctx, c) }
	var gates []*kustomization
	for i, open := range []func(context.Context) error{installed.serves, serves, jobDone} {
		k := &kustomization{t: t, namespace: fluxNamespace, name: steps[i].GetName()}
		k.endsWithTest()
		k.watchReadiness(open)
		gates = append(gates, k)
	}
	watchUntilEnd(t, &batchv1.JobList{}, shopNamespace, "orders-schema", func(ctx context.Context, event string, _ client.Object) {
		if err := serves(ctx); event == "ADDED" && err != nil {
			t.Errorf("the Job is made before the database serves: %v", err)
		}
	})
	for _, obj := range slices.Concat(sources, steps) {
		must(t, env.client.Create(t.Context(), obj.DeepCopy()), "create "+obj.GetKind()+" "+obj.GetName())
	}

	newRepository(t, fluxNamespace, "holdfast").commitFiles("the operator", readTree(t, "config"))
	revision := newRepository(t, fluxNamespace, "shop").commitFiles("the shop", shopFiles(t))
	gates[2].waitReady(revision)
	if got := c.runSQL(leading, "select count(*) from items"); got != "0" {
		t.Errorf("the Job's table has %s rows", got)
	}
}

// shopFiles are the examples' folders as the shop's own repository holds them.
func shopFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for name, content := range readTree(t, "examples/flux") {
		files[strings.TrimPrefix(name, "examples/flux/")] = content
	}
	return files
}

func clusterServes(ctx context.Context, c *cluster) error {
	var obj v1alpha1.PostgresCluster
	if err := env.client.Get(ctx, c.nameOf(""), &obj); err != nil {
		return err
	}
	return rolledOut(&obj)
}

// serves says why the operator's Deployment is not available.
func (o *operator) serves(ctx context.Context) error {
	d, err := o.getDeployment(ctx)
	if err == nil && (d.Status.ObservedGeneration != d.Generation || d.Status.AvailableReplicas < 1) {
		err = fmt.Errorf("%d operators are available", d.Status.AvailableReplicas)
	}
	return err
}

func jobDone(ctx context.Context) error {
	var job batchv1.Job
	if err := env.client.Get(ctx, types.NamespacedName{Namespace: shopNamespace, Name: "orders-schema"}, &job); err != nil {
		return err
	}
	if job.Status.Succeeded != 1 || job.Status.Failed != 0 {
		return fmt.Errorf("the Job succeeded %d times and failed %d times", job.Status.Succeeded, job.Status.Failed)
	}
	return nil
}

// operatorIncarnation names the operator's pods, which a restart renames.
func operatorIncarnation(t *testing.T) string {
	t.Helper()
	pods, err := installed.listPods(t.Context())
	must(t, err, "the operator's pods")
	var names []string
	for _, p := range pods {
		if p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// fluxUpgrades: Flux takes the operator over, brings another with other CRDs,
// and takes both back. No database restarts, and none says for a moment that it
// is not ready.
func fluxUpgrades(t *testing.T) {
	needFlux(t)
	image := env.operatorImage
	name, tag, _ := strings.Cut(image, ":")
	nextTag := tag + "-next"
	tagOnNodes(t, image, name+":"+nextTag)

	namespaces := []string{newNamespace(t, "several-"), newNamespace(t, "alone-")}
	installed.runLimited(t, namespaces...)
	upgraded := operatorKustomization(t, image, namespaces...)
	unstructured.RemoveNestedField(upgraded.Object, "spec", "images") // the repository names it, as the example's does
	r := newRepository(t, fluxNamespace, "holdfast")
	takeAway(t, upgraded, r.gitRepository())
	t.Cleanup(func() { takeAway(t, r.gitRepository()) })
	r.createSource()
	must(t, env.client.Create(t.Context(), upgraded.DeepCopy()), "create the Kustomization")
	k := &kustomization{t: t, namespace: fluxNamespace, name: upgraded.GetName()}
	k.endsWithTest()
	running := operatorIncarnation(t)
	k.waitReady(r.commitFiles("the operator that runs", withImage(t, readTree(t, "config"), image)))
	if now := operatorIncarnation(t); now != running {
		t.Errorf("Flux replaced the operator by the same: %s, before %s", now, running)
	}

	clusters := []*cluster{createCluster(t, namespaces[0], orders, 3), createCluster(t, namespaces[1], orders, 1)}
	w := waitAll(clusters)[0].startWriter()
	var before []string
	var marks []int
	for _, c := range clusters {
		before, marks = append(before, c.allIncarnations()), append(marks, c.markPlace())
	}
	rolled := func(tag string) {
		if got := installedImage(t); got != name+":"+tag {
			t.Errorf("the operator's image is %s", got)
		}
		for i, c := range clusters {
			c.awaitHandled()
			if now := c.allIncarnations(); now != before[i] {
				t.Errorf("a database restarted:\n%s\nbefore:\n%s", now, before[i])
			}
			for _, obj := range c.sinceMark(marks[i]) {
				if err := rolledOut(obj); err != nil {
					t.Errorf("resourceVersion %s was not ready: %v", obj.GetResourceVersion(), err)
				}
			}
		}
		w.goesOn()
	}
	schemas.Lock()
	defer schemas.Unlock()
	next := withImage(t, readTree(t, "config"), name+":"+nextTag)
	next[crdFile] = withField(t, next[crdFile])
	k.waitReady(r.commitFiles("the next operator", next))
	if !knowsField(t) {
		t.Error("the CRD is as it was")
	}
	rolled(nextTag)
	var set appsv1.StatefulSet
	clusters[0].readObject(&set, orders)
	if got := set.Spec.Template.Spec.InitContainers[0].Image; got != image {
		t.Errorf("a pod that returns would have the agent of %s, and not of %s as the others", got, image)
	}
	for _, c := range clusters {
		agent := c.getCluster().Status.Agent
		if agent == nil || agent.Available != name+":"+nextTag || len(agent.Outdated) != int(*c.getCluster().Spec.Replicas) {
			t.Errorf("status says of the agents: %+v", agent)
		}
	}
	k.waitReady(r.revertCommit())
	rolled(tag)
	w.stopWriting()
}

func waitAll(clusters []*cluster) []*cluster {
	for _, c := range clusters {
		c.waitReady()
	}
	return clusters
}

// operatorImageLine is where the tree names the operator's image, with a version.
var operatorImageLine = regexp.MustCompile(`image: ` + regexp.QuoteMeta(kustomizations.OperatorImage) + `:\S+`)

// withImage is a tree of the operator that names another image.
func withImage(t *testing.T, files map[string]string, image string) map[string]string {
	t.Helper()
	const file = "config/manager/deployment.yaml"
	if len(operatorImageLine.FindAllString(files[file], -1)) != 1 {
		t.Fatalf("%s does not name the operator's image once", file)
	}
	files[file] = operatorImageLine.ReplaceAllLiteralString(files[file], "image: "+image)
	return files
}

// withField is a CRD with one more field in its spec.
func withField(t *testing.T, crd string) string {
	t.Helper()
	const place = "          spec:\n"
	at := strings.Index(crd, place)
	properties := "            properties:\n"
	if at < 0 || !strings.Contains(crd[at:], properties) {
		t.Fatal("the CRD has no spec")
	}
	field := properties + "              addedByFlux:\n                type: string\n"
	return crd[:at] + strings.Replace(crd[at:], properties, field, 1)
}

func knowsField(t *testing.T) bool {
	t.Helper()
	crd := liveObject(t, fluxObject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "postgresclusters.holdfast.dev"))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	must(t, err, "read the CRD")
	fields, ok := versions[0].(map[string]any)
	if !ok {
		t.Fatal("the CRD has no version")
	}
	_, found, err := unstructured.NestedMap(fields, "schema", "openAPIV3Schema", "properties", "spec", "properties", "addedByFlux")
	must(t, err, "read the CRD")
	return found
}
