//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	kustomizeAPI = "kustomize.toolkit.fluxcd.io/v1"
	// fluxManager is the field manager of what Flux applies.
	fluxManager = "kustomize-controller"
	// requestedAt is how flux reconcile asks.
	requestedAt = "reconcile.fluxcd.io/requestedAt"
)

// fluxTimeout is for Flux to notice, apply and check: it polls what it waits
// for every five seconds.
const fluxTimeout = 4 * time.Minute

// kustomization is what Flux applies of a repository.
type kustomization struct {
	t               *testing.T
	namespace, name string
}

// newKustomization applies a folder of the repository to the repository's own
// namespace, or as the fields of its spec say; those that are nil are left out.
// Its own timeout is longer than any wait of a test.
func newKustomization(r *repository, name, path string, spec map[string]any) *kustomization {
	r.t.Helper()
	k := &kustomization{t: r.t, namespace: r.namespace, name: name}
	u := fluxObject(kustomizeAPI, "Kustomization", k.namespace, k.name)
	all := map[string]any{
		"sourceRef": map[string]any{"kind": "GitRepository", "name": r.name},
		"path":      path, "targetNamespace": k.namespace,
		"interval": "1h", "timeout": "10m", "prune": true, "wait": true,
	}
	for field, value := range spec {
		all[field] = value
		if value == nil {
			delete(all, field)
		}
	}
	u.Object["spec"] = all
	must(r.t, env.client.Create(r.t.Context(), u), "create a Kustomization")
	k.endsWithTest()
	return k
}

// endsWithTest takes the Kustomization away when the test ends, before its
// namespace goes: a check of what is gone already would hold both up. After a
// failure what it applied stays, to be written down.
func (k *kustomization) endsWithTest() {
	k.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		u, err := k.getObject(ctx)
		if err != nil {
			return
		}
		if !k.t.Failed() {
			takeAway(k.t, u)
			return
		}
		k.t.Logf("Kustomization %s: %s", k.name, reportedMessage(u))
		err = env.client.Delete(ctx, u)
		if err == nil {
			err = env.client.Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}
		if client.IgnoreNotFound(err) != nil {
			k.t.Errorf("take Kustomization %s away: %v", k.name, err)
		}
	})
}

// takeAway deletes objects, one after the other, and waits until each is gone;
// Flux prunes first.
func takeAway(t *testing.T, objects ...client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	for _, obj := range objects {
		err := env.client.Delete(ctx, obj)
		for ; err == nil; err = env.client.Delete(ctx, obj) {
			time.Sleep(pollInterval)
		}
		if client.IgnoreNotFound(err) != nil {
			t.Errorf("take %s away: %v", obj.GetName(), err)
		}
	}
}

func (k *kustomization) getObject(ctx context.Context) (*unstructured.Unstructured, error) {
	u := fluxObject(kustomizeAPI, "Kustomization", k.namespace, k.name)
	return u, env.client.Get(ctx, client.ObjectKeyFromObject(u), u)
}

// readyCondition of a Kustomization.
func readyCondition(u *unstructured.Unstructured) metav1.Condition {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		fields, _ := item.(map[string]any)
		if fields["type"] != "Ready" {
			continue
		}
		return metav1.Condition{
			Status:  metav1.ConditionStatus(fmt.Sprint(fields["status"])),
			Reason:  fmt.Sprint(fields["reason"]),
			Message: fmt.Sprint(fields["message"]),
		}
	}
	return metav1.Condition{}
}

func reportedMessage(u *unstructured.Unstructured) string {
	ready := readyCondition(u)
	return fmt.Sprintf("Ready=%s/%s: %s", ready.Status, ready.Reason, ready.Message)
}

func statusField(u *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(u.Object, "status", field)
	return value
}

// checkApplied says why a revision is not applied and healthy.
func checkApplied(u *unstructured.Unstructured, revision string) error {
	result, err := status.Compute(u)
	if err != nil {
		return err
	}
	if result.Status != status.CurrentStatus || readyCondition(u).Status != metav1.ConditionTrue {
		return errors.New(reportedMessage(u))
	}
	if at := statusField(u, "lastAppliedRevision"); revision != "" && at != revision {
		return fmt.Errorf("applied is %s, want %s", at, revision)
	}
	return nil
}

// waitReady waits until a revision is applied and healthy.
func (k *kustomization) waitReady(revision string) {
	k.t.Helper()
	eventually(k.t, fluxTimeout, "Kustomization "+k.name+" is ready", func(ctx context.Context) error {
		u, err := k.getObject(ctx)
		if err != nil {
			return err
		}
		return checkApplied(u, revision)
	})
}

// waitFailed waits until Flux gave a revision up for a reason of its own, and
// says so in these words.
func (k *kustomization) waitFailed(revision, reason string, words ...string) {
	k.t.Helper()
	eventually(k.t, fluxTimeout, "Kustomization "+k.name+" has failed", func(ctx context.Context) error {
		u, err := k.getObject(ctx)
		if err != nil {
			return err
		}
		if ready := readyCondition(u); ready.Status != metav1.ConditionFalse || ready.Reason != reason {
			return errors.New(reportedMessage(u))
		}
		if at := statusField(u, "lastAttemptedRevision"); at != revision {
			return fmt.Errorf("attempted is %s, want %s", at, revision)
		}
		return holdsAll(readyCondition(u).Message, words...)
	})
}

// reconcileNow is flux reconcile kustomization, and waits for the end of it.
func (k *kustomization) reconcileNow() {
	k.t.Helper()
	at := time.Now().Format(time.RFC3339Nano)
	u := fluxObject(kustomizeAPI, "Kustomization", k.namespace, k.name)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, requestedAt, at)
	must(k.t, env.client.Patch(k.t.Context(), u, client.RawPatch(types.MergePatchType, body)), "ask for a sync")
	eventually(k.t, fluxTimeout, "Kustomization "+k.name+" is synced", func(ctx context.Context) error {
		u, err := k.getObject(ctx)
		if err != nil {
			return err
		}
		if handled := statusField(u, "lastHandledReconcileAt"); handled != at {
			return fmt.Errorf("handled is %q, want %q", handled, at)
		}
		return checkApplied(u, "")
	})
}

// setSuspended is flux suspend, or flux resume.
func (k *kustomization) setSuspended(suspended bool) {
	k.t.Helper()
	u := fluxObject(kustomizeAPI, "Kustomization", k.namespace, k.name)
	body := fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspended)
	must(k.t, env.client.Patch(k.t.Context(), u, client.RawPatch(types.MergePatchType, body)), "suspend or resume")
}

// watchReadiness watches the Kustomization until the test ends: whenever it says that it
// is ready, so must be what it waits for.
func (k *kustomization) watchReadiness(open func(context.Context) error) {
	k.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(kustomizeAPI)
	list.SetKind("KustomizationList")
	watchUntilEnd(k.t, list, k.namespace, k.name, func(ctx context.Context, _ string, obj client.Object) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok || u.GetDeletionTimestamp() != nil || checkApplied(u, "") != nil {
			return
		}
		if err := open(ctx); err != nil && ctx.Err() == nil {
			k.t.Errorf("Kustomization %s is ready, and what it waits for is not: %v", k.name, err)
		}
	})
}

// watchUntilEnd calls for every event of one name, until the test ends.
func watchUntilEnd(t *testing.T, list client.ObjectList, namespace, name string, each func(ctx context.Context, event string, obj client.Object)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w, err := env.client.Watch(ctx, list, &client.ListOptions{
		Namespace: namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", name),
	})
	must(t, err, "watch "+name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range w.ResultChan() {
			if obj, ok := event.Object.(client.Object); ok {
				each(ctx, string(event.Type), obj)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		w.Stop()
		<-done
	})
}

// delivery is one cluster that comes from a repository by Flux.
type delivery struct {
	*repository
	k *kustomization
	c *cluster
}

// fluxCluster is the manifest of a cluster; lines are fields of its spec.
func fluxCluster(lines ...string) string {
	if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "storage:") }) {
		lines = append([]string{"storage: {size: 1Gi}"}, lines...)
	}
	return `apiVersion: holdfast.dev/v1alpha1
kind: PostgresCluster
metadata:
  name: ` + orders + `
spec:
  version: "17"
  ` + unsaved + `
` + indentLines(lines)
}

func indentLines(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// kustomizationFile lists files; lines are more fields.
func kustomizationFile(resources string, lines ...string) string {
	return "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" + resources + "]\n" + strings.Join(lines, "\n") + "\n"
}

// deliverCluster commits a cluster and waits until Flux says that it is there. The
// fields are of the Kustomization's spec.
func deliverCluster(t *testing.T, fields map[string]any, lines ...string) *delivery {
	t.Helper()
	needFlux(t)
	return deliverInto(t, newNamespace(t, ""), installed, fields, lines...)
}

// deliverInto does so in a namespace, for an operator.
func deliverInto(t *testing.T, namespace string, by *operator, fields map[string]any, lines ...string) *delivery {
	t.Helper()
	d := &delivery{repository: newRepository(t, namespace, "shop")}
	d.c = followCluster(t, d.namespace, orders)
	d.c.operator = by
	d.createSource()
	d.k = newKustomization(d.repository, "database", "./", fields)
	d.k.waitReady(d.commitFiles("a cluster", map[string]string{
		"kustomization.yaml": kustomizationFile("orders.yaml"), "orders.yaml": fluxCluster(lines...),
	}))
	must(t, rolledOut(d.c.getCluster()), "the cluster, when Flux says that it is ready")
	return d
}

// commitSpec commits the cluster with another spec and waits until it is rolled out.
func (d *delivery) commitSpec(message string, lines ...string) {
	d.t.Helper()
	d.k.waitReady(d.commitFiles(message, map[string]string{"orders.yaml": fluxCluster(lines...)}))
	if obj := d.c.getCluster(); obj.Status.ObservedGeneration != obj.Generation {
		d.t.Errorf("Flux says that the cluster is ready, and generation %d is not observed, but %d", obj.Generation, obj.Status.ObservedGeneration)
	}
	d.c.waitReady() // on a busy machine a replica may fall behind for a moment
}
