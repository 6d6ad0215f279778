package apply

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ListKinds lists the kinds of empty objects that are Kubernetes' own, for
// Options.Prune.
func ListKinds(objects []client.Object) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, obj := range objects {
		gvk, err := apiutil.GVKForObject(obj, clientgoscheme.Scheme)
		utilruntime.Must(err)
		kinds = append(kinds, gvk)
	}
	return kinds
}
