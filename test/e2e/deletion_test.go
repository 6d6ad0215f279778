//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// listRemaining are the objects in the namespace that belong to the cluster, as
// Kind/name, those of Leases by their name alone.
func (c *subject) listRemaining(ctx context.Context) ([]string, error) {
	var found []string
	for kind, list := range map[string]client.ObjectList{
		"StatefulSet": &appsv1.StatefulSetList{}, "Service": &corev1.ServiceList{}, "ConfigMap": &corev1.ConfigMapList{},
		"Secret": &corev1.SecretList{}, "ServiceAccount": &corev1.ServiceAccountList{}, "Role": &rbacv1.RoleList{},
		"RoleBinding": &rbacv1.RoleBindingList{}, "PodDisruptionBudget": &policyv1.PodDisruptionBudgetList{},
		"NetworkPolicy": &networkingv1.NetworkPolicyList{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaimList{},
		"Pod": &corev1.PodList{}, "Lease": &coordinationv1.LeaseList{},
	} {
		if err := env.client.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
			return nil, err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			obj, ok := item.(client.Object)
			if !ok {
				continue
			}
			if obj.GetLabels()[v1alpha1.LabelCluster] == c.name || kind == "Lease" && strings.HasPrefix(obj.GetName(), c.name) {
				found = append(found, kind+"/"+obj.GetName())
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// deleteCluster deletes the cluster's object and waits until nothing but want is
// there; a Lease may stay or go.
func (c *subject) deleteCluster(want ...string) {
	c.t.Helper()
	must(c.t, env.client.Delete(c.t.Context(), c.getCluster()), "delete the cluster")
	slices.Sort(want)
	eventually(c.t, goneTimeout, fmt.Sprintf("nothing but %v remains", want), func(ctx context.Context) error {
		have, err := c.listRemaining(ctx)
		have = slices.DeleteFunc(have, func(name string) bool { return strings.HasPrefix(name, "Lease/") })
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("there are %v", have)
		}
		return err
	})
}

// checkDeletionPolicy checks what the cluster says that deleting it does to its data.
func (c *subject) checkDeletionPolicy(want v1alpha1.DeletionPolicy) {
	c.t.Helper()
	if got := c.getCluster().CommonStatus().DeletionPolicy; got != want {
		c.t.Errorf("status.deletionPolicy is %q, want %q", got, want)
	}
}

func deletionRetains(t *testing.T, k *kind) {
	c := newSubject(t, k, k.several)
	c.waitReady()
	k.keepValue(c, "7")
	if got := k.checkServes(t, c); got != "7" {
		t.Errorf("an application reads %q", got)
	}
	connection := c.readSecret("-app")
	identifier := c.getCluster().CommonStatus().SystemIdentifier
	c.checkDeletionPolicy(v1alpha1.DeletionRetain)
	c.deleteCluster(c.retainedNames(k.several)...)

	c.createCluster(k.several)
	obj := c.waitReady()
	if got := k.checkServes(t, c); got != "7" {
		t.Errorf("what was kept came back as %q", got)
	}
	for key, before := range connection {
		if now := c.readSecret("-app")[key]; string(now) != string(before) {
			t.Errorf("applications would need another %s", key)
		}
	}
	if now := obj.CommonStatus().SystemIdentifier; now != identifier || identifier == "" {
		t.Errorf("the database system is %q, before %q", now, identifier)
	}
	k.awaitUnited(c, int(k.several))
}

func deletionDeletes(t *testing.T, k *kind) {
	const policy = "deletionPolicy: Delete"
	c := newSubject(t, k, k.several, policy)
	c.waitReady()
	k.keepValue(c, "7")
	c.checkDeletionPolicy(v1alpha1.DeletionDelete)
	owned := map[string]client.Object{c.name + "-ca": &corev1.Secret{}, c.name + "-internal": &corev1.Secret{}}
	for n := range k.several {
		owned[c.volumeName(int(n))] = &corev1.PersistentVolumeClaim{}
	}
	for name, obj := range owned {
		c.readObject(obj, name)
		if len(obj.GetOwnerReferences()) != 1 || obj.GetOwnerReferences()[0].UID != c.getCluster().GetUID() {
			t.Errorf("%s is owned by %v", name, obj.GetOwnerReferences())
		}
	}
	c.scaleTo(1)
	c.waitReady()
	for n := 1; n < int(k.several); n++ {
		eventually(t, goneTimeout, "the former member's volume goes", func(ctx context.Context) error {
			var v corev1.PersistentVolumeClaim
			return checkGone(env.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.volumeName(n)}, &v))
		})
	}
	if kept := k.keptValue(c); kept != "7" {
		t.Errorf("what was kept is %q", kept)
	}
	c.deleteCluster()

	c.createCluster(1)
	c.waitReady()
	if kept := k.keptValue(c); kept != "" {
		t.Errorf("what was deleted came back: %q", kept)
	}
}

// namespaceEndsWithoutOperator: nothing waits for an operator that is gone.
func namespaceEndsWithoutOperator(t *testing.T, k *kind) {
	c := newOperated(t, k, k.several)
	c.waitReady()
	c.operator.scaleTo(t, 0)
	ns := &corev1.Namespace{}
	ns.Name = c.namespace
	must(t, env.client.Delete(t.Context(), ns), "delete the namespace")
	eventually(t, goneTimeout, "the namespace ends", func(ctx context.Context) error {
		err := env.client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		if err == nil {
			for _, cond := range ns.Status.Conditions {
				err = errors.Join(err, fmt.Errorf("%s: %s", cond.Type, cond.Message))
			}
			return errors.Join(errors.New("it is still there"), err)
		}
		return checkGone(err)
	})
}
