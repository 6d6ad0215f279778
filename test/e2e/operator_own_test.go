//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchFlag limits an operator to some namespaces.
const watchFlag = "--watch-namespaces="

// newOperated creates a cluster with an operator of its own, which the test may
// stop, kill and count the requests of while other tests run.
func newOperated(t *testing.T, k *kind, replicas int32, spec ...string) *subject {
	t.Helper()
	needKind(t, k)
	// The operator's namespace goes after the cluster's: Backups need it to go.
	own := &operator{newNamespace(t, "operator-"), operatorName}
	namespace := newNamespace(t, "")
	own.install(t, namespace)
	c := followSubject(t, k, namespace, orders)
	c.operator = own
	c.createCluster(replicas, spec...)
	return c
}

// install puts what config/default installs into the operator's namespace, for
// clusters of one other namespace, with more arguments.
func (o *operator) install(t *testing.T, watched string, args ...string) {
	t.Helper()
	must(t, checkNoneWatchesAll(t.Context()), "install an operator of the test's own")
	for _, obj := range renderFolder(t, "../../config/default") {
		if !o.adoptObject(t, obj, watched, args) {
			continue
		}
		must(t, env.client.Create(t.Context(), obj), "create "+obj.GetKind()+" "+obj.GetName())
		if obj.GetNamespace() == "" { // it does not go with a namespace
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
				defer cancel()
				if err := env.client.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
					t.Errorf("delete %s %s: %v", obj.GetKind(), obj.GetName(), err)
				}
			})
		}
	}
	o.waitForLeader(t)
}

// checkNoneWatchesAll refuses a second operator for clusters that the installed one
// acts on: what a test proves of its own operator, the other could have done.
func checkNoneWatchesAll(ctx context.Context) error {
	d, err := installed.getDeployment(ctx)
	if err != nil {
		return client.IgnoreNotFound(err) // removed by the test of another way to install it
	}
	limited := slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Args, func(arg string) bool { return strings.HasPrefix(arg, watchFlag) })
	if ptr.Deref(d.Spec.Replicas, 1) > 0 && !limited {
		return errors.New("the installed operator watches every namespace: scale it to zero first")
	}
	return nil
}

// adoptObject changes an object of the usual installation into the operator's
// own, and says whether it is needed: CRDs and the tenants' roles are there.
func (o *operator) adoptObject(t *testing.T, obj *unstructured.Unstructured, watched string, args []string) bool {
	t.Helper()
	const manager = "holdfast-manager"
	switch obj.GetKind() {
	case "Namespace", "CustomResourceDefinition":
		return false
	case "ClusterRole", "ClusterRoleBinding":
		if obj.GetName() != manager {
			return false
		}
		obj.SetName(o.namespace)
	default:
		obj.SetNamespace(o.namespace)
	}
	switch obj.GetKind() {
	case "ClusterRoleBinding":
		must(t, unstructured.SetNestedField(obj.Object, o.namespace, "roleRef", "name"), "name the role")
		fallthrough
	case "RoleBinding":
		subjects := []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "name": operatorName, "namespace": o.namespace}}
		must(t, unstructured.SetNestedSlice(obj.Object, subjects, "subjects"), "name the account")
	case "Deployment":
		o.limitDeployment(t, obj, append([]string{watchFlag + watched}, args...))
	}
	return true
}

// limitDeployment gives the Deployment the image that is installed, more arguments, and
// a shorter Lease: tests that kill it wait for its end.
func (o *operator) limitDeployment(t *testing.T, obj *unstructured.Unstructured, more []string) {
	t.Helper()
	path := []string{"spec", "template", "spec", "containers"}
	containers, found, err := unstructured.NestedSlice(obj.Object, path...)
	must(t, err, "read the Deployment")
	manager, isMap := map[string]any{}, false
	if found && len(containers) == 1 {
		manager, isMap = containers[0].(map[string]any)
	}
	args, isList := manager["args"].([]any)
	if !isMap || !isList {
		t.Fatalf("the Deployment's containers are %v", containers)
	}
	manager["image"] = env.operatorImage
	for _, arg := range append(more, "--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s") {
		args = append(args, arg)
	}
	manager["args"] = args
	must(t, unstructured.SetNestedSlice(obj.Object, containers, path...), "change the Deployment")
}

// waitForLeader waits until an operator that was not stopped leads.
func (o *operator) waitForLeader(t *testing.T) {
	t.Helper()
	eventually(t, leaderTimeout, "an operator leads", func(ctx context.Context) error {
		_, err := o.findLeader(ctx)
		return err
	})
}

// stopInstalled stops the installed operator until the test ends, so that tests
// can have operators of their own.
func stopInstalled(t *testing.T) {
	t.Helper()
	installed.restoreReplicas(t)
	installed.scaleTo(t, 0)
}

// accounts are the operator's service accounts in the audit log.
func (o *operator) accounts() string {
	return fmt.Sprintf("^system:serviceaccount:%s:", o.namespace)
}

// isOwnLease says whether a request is about the Lease by which one of the operator's pods leads.
func (o *operator) isOwnLease(r auditRow) bool {
	return r.Namespace == o.namespace && r.Name == operatorLease && strings.HasPrefix(r.Resource, "leases.")
}
