package plugin

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// kind is what the verbs need to know of one kind of cluster.
type kind struct {
	gvk schema.GroupVersionKind
	// names that a person may put before the slash of kind/name.
	names []string
	// engine is the database's name for people.
	engine string
	newOne func() v1alpha1.Cluster
	// list reads the clusters of a namespace; of all when it is empty.
	list func(ctx context.Context, r client.Reader, namespace string) ([]v1alpha1.Cluster, error)
	// lag and pendingRestart are the members' metrics of those.
	lag, pendingRestart string
	// declared is what the operator would apply, computed from the same inputs.
	declared func(ctx context.Context, r client.Reader, c v1alpha1.Cluster) (declaration, error)
	// sql is the command line of an interactive client in a member's container.
	sql func(c v1alpha1.Cluster) []string
	// environment names the variables that the engine's clients read, by key of
	// the connection Secret.
	environment map[string]string
}

// declaration is what should exist.
type declaration struct {
	objects []runtime.ApplyConfiguration
	// notes say what could not be known.
	notes []string
}

// kinds of cluster that there are.
func kinds() []kind { return []kind{postgresKind()} }

func (k kind) called(name string) bool {
	for _, n := range append(k.names, k.gvk.Kind) {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

func kindOf(c v1alpha1.Cluster) kind {
	for _, k := range kinds() {
		if k.gvk.Kind == c.GetObjectKind().GroupVersionKind().Kind {
			return k
		}
	}
	return kind{}
}
