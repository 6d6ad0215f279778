//go:build e2e || soak

package e2e

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// cluster is a PostgresCluster under test.
type cluster struct{ *subject }

// smallCluster is a cluster of few resources, of the version of the quickstart, without
// backups.
func smallCluster(namespace, name string, replicas int32) *v1alpha1.PostgresCluster {
	return &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.PostgresClusterSpec{
			Version:    "17",
			CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas, Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Storage:    v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
}

// newCluster creates one in a namespace of its own and follows its status from
// the first on.
func newCluster(t *testing.T, replicas int32, edits ...func(*v1alpha1.PostgresCluster)) *cluster {
	t.Helper()
	needKind(t, postgres)
	return createCluster(t, newNamespace(t, ""), orders, replicas, edits...)
}

func createCluster(t *testing.T, namespace, name string, replicas int32, edits ...func(*v1alpha1.PostgresCluster)) *cluster {
	t.Helper()
	c := followCluster(t, namespace, name)
	c.createCluster(replicas, edits...)
	return c
}

// followCluster is one that another client creates.
func followCluster(t *testing.T, namespace, name string) *cluster {
	t.Helper()
	return &cluster{followSubject(t, postgres, namespace, name)}
}

func (c *cluster) createCluster(replicas int32, edits ...func(*v1alpha1.PostgresCluster)) {
	c.t.Helper()
	obj := smallCluster(c.namespace, c.name, replicas)
	for _, edit := range edits {
		edit(obj)
	}
	must(c.t, env.client.Create(c.t.Context(), obj), "create the cluster")
}

func (c *cluster) withTest(t *testing.T) *cluster { return &cluster{c.subject.withTest(t)} }

func (c *cluster) getCluster() *v1alpha1.PostgresCluster {
	c.t.Helper()
	return asPostgres(c.subject.getCluster())
}

// editCluster changes the object as a client with that field manager would.
func (c *cluster) editCluster(change func(*v1alpha1.PostgresCluster)) {
	c.t.Helper()
	obj := c.getCluster()
	before := client.MergeFrom(obj.DeepCopy())
	change(obj)
	must(c.t, env.client.Patch(c.t.Context(), obj, before, client.FieldOwner("e2e")), "edit the cluster")
}

func (c *cluster) waitFor(timeout time.Duration, what string, condition func(*v1alpha1.PostgresCluster) error) *v1alpha1.PostgresCluster {
	c.t.Helper()
	return asPostgres(c.subject.waitFor(timeout, what, func(obj v1alpha1.Cluster) error { return condition(asPostgres(obj)) }))
}

func (c *cluster) waitReady() *v1alpha1.PostgresCluster {
	c.t.Helper()
	return asPostgres(c.subject.waitReady())
}

func asPostgres(obj v1alpha1.Cluster) *v1alpha1.PostgresCluster {
	typed, ok := obj.(*v1alpha1.PostgresCluster)
	if !ok {
		panic(fmt.Sprintf("%T is no PostgresCluster", obj))
	}
	return typed
}

// runSQL runs a query in a member as the superuser.
func (c *cluster) runSQL(ordinal int, query string) string {
	c.t.Helper()
	out, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(ordinal), "app", query)
	must(c.t, err, c.podName(ordinal)+": "+query)
	return out
}

// connectionURI is the one that applications connect with.
func (c *cluster) connectionURI() string {
	c.t.Helper()
	uri := string(c.readSecret("-app")["uri"])
	if uri == "" {
		c.t.Fatal("the connection Secret has no uri")
	}
	return uri
}
