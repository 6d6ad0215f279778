//go:build e2e

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

// remains are the objects in the namespace that belong to the cluster, as
// Kind/name, those of Leases by their name alone.
func (c *cluster) remains(ctx context.Context) ([]string, error) {
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

// delete deletes the cluster's object and waits until nothing but want is
// there; a Lease may stay or go.
func (c *cluster) delete(want ...string) {
	c.t.Helper()
	must(c.t, env.client.Delete(c.t.Context(), c.get()), "delete the cluster")
	slices.Sort(want)
	eventually(c.t, goneTimeout, fmt.Sprintf("nothing but %v remains", want), func(ctx context.Context) error {
		have, err := c.remains(ctx)
		have = slices.DeleteFunc(have, func(name string) bool { return strings.HasPrefix(name, "Lease/") })
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("there are %v", have)
		}
		return err
	})
}

func deletionRetains(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	app := newClient(t)
	app.mustPsql(t, c.uri(), "create table kept (id int); insert into kept values (7)")
	uri, ca := c.uri(), string(c.secret("-ca")["ca.crt"])
	identifier := c.get().Status.SystemIdentifier
	c.delete("PersistentVolumeClaim/data-orders-0", "PersistentVolumeClaim/data-orders-1", "Secret/orders-ca", "Secret/orders-internal")

	c.create(2)
	obj := c.waitReady()
	if got := app.mustPsql(t, uri, "select id from kept"); got != "7" {
		t.Errorf("the row came back as %q", got)
	}
	if c.uri() != uri {
		t.Error("applications would need another connection string")
	}
	if string(c.secret("-ca")["ca.crt"]) != ca {
		t.Error("applications would need another CA")
	}
	if obj.Status.SystemIdentifier != identifier || identifier == "" {
		t.Errorf("the database system is %q, before %q", obj.Status.SystemIdentifier, identifier)
	}
	if n := c.sql(0, streamingOverTLS); n != "1" {
		t.Errorf("%s replicas stream, want 1", n)
	}
}

func deletionDeletes(t *testing.T) {
	c := newCluster(t, 2, func(obj *v1alpha1.PostgresCluster) { obj.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	c.waitReady()
	for _, obj := range []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.Secret{}} {
		names := []string{c.volume(0), c.volume(1)}
		if _, isSecret := obj.(*corev1.Secret); isSecret {
			names = []string{c.name + "-ca", c.name + "-internal"}
		}
		for _, name := range names {
			c.read(obj, name)
			if len(obj.GetOwnerReferences()) != 1 || obj.GetOwnerReferences()[0].UID != c.get().UID {
				t.Errorf("%s is owned by %v", name, obj.GetOwnerReferences())
			}
		}
	}
	c.scale(1)
	c.waitReady()
	eventually(t, goneTimeout, "the former member's volume goes", func(ctx context.Context) error {
		var v corev1.PersistentVolumeClaim
		return gone(env.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.volume(1)}, &v))
	})
	c.delete()

	c.create(1)
	c.waitReady()
	if n := c.sql(0, "select count(*) from pg_tables where tablename = 'kept'"); n != "0" {
		t.Error("what was deleted came back")
	}
}

// namespaceEndsWithoutOperator: nothing waits for an operator that is gone.
func namespaceEndsWithoutOperator(t *testing.T) {
	keepOperator(t)
	c := newCluster(t, 2)
	c.waitReady()
	scaleOperator(t, 0)
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
		return gone(err)
	})
	scaleOperator(t, 1)
}
