package plugin

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/plugin/declaration"
)

// kind is what the verbs need to know of one kind of cluster.
type kind struct {
	gvk schema.GroupVersionKind
	// names that a person may put before the slash of kind/name, the shortest
	// first.
	names []string
	// engine is the database's name for people, and lead what it calls the
	// member that status.primary names.
	engine, lead string
	newCluster   func() v1alpha1.Cluster
	newList      func() client.ObjectList
	// lag, pendingRestart, size and limit are the members' metrics of a replica's
	// lag, of settings that wait, and of the data; empty where the engine has none.
	lag, pendingRestart, size, limit string
	// declared is what the operator would apply, computed from the same inputs.
	declared func(ctx context.Context, r client.Reader, c v1alpha1.Cluster) (declaration.Declaration, error)
	// client is the database's own, and shell what opens a shell in a member's
	// container; nil where the image has none.
	client program
	shell  []string
	// connection is what the connection Secret holds, in the order in which it
	// is shown.
	connection []connectionKey
	// environment is what clients need beside that, with the certificates in
	// files or without; nil for nothing.
	environment func(files bool) [][2]string
}

// allKinds are the kinds of cluster that there are.
func allKinds() []kind { return []kind{postgresKind(), mysqlKind(), etcdKind()} }

// kindOf a cluster, by its Go type: what was read does not always say its kind.
func kindOf(c v1alpha1.Cluster) kind {
	for _, k := range allKinds() {
		if reflect.TypeOf(c) == reflect.TypeOf(k.newCluster()) {
			return k
		}
	}
	panic(fmt.Sprintf("%T is in no table of kinds", c))
}

// hasName says whether a person may mean the kind by a name.
func (k kind) hasName(name string) bool {
	for _, n := range append(k.names, k.gvk.Kind) {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// qualifiedName is a cluster's name that no other kind's cluster has.
func (k kind) qualifiedName(name string) string { return k.names[0] + "/" + name }

// nameOf is how a cluster is named in what is printed.
func nameOf(c v1alpha1.Cluster) string { return kindOf(c).qualifiedName(c.GetName()) }

// getCluster reads one cluster.
func (k kind) getCluster(ctx context.Context, r client.Reader, key client.ObjectKey) (v1alpha1.Cluster, error) {
	c := k.newCluster()
	err := r.Get(ctx, key, c)
	c.GetObjectKind().SetGroupVersionKind(k.gvk)
	return c, err
}

// listClusters reads the clusters of a namespace; of all when it is empty.
func (k kind) listClusters(ctx context.Context, r client.Reader, namespace string) ([]v1alpha1.Cluster, error) {
	list := k.newList()
	if err := r.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return k.itemsOf(list)
}

// itemsOf a list of the kind.
func (k kind) itemsOf(list client.ObjectList) ([]v1alpha1.Cluster, error) {
	var all []v1alpha1.Cluster
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		if c, is := obj.(v1alpha1.Cluster); is {
			c.GetObjectKind().SetGroupVersionKind(k.gvk)
			all = append(all, c)
		}
		return nil
	})
	return all, err
}
