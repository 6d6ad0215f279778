package gitops

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func TestFindTool(t *testing.T) {
	for _, test := range []struct {
		name string
		meta metav1.ObjectMeta
		want string
	}{
		{"no tool", metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl-edit"}}}, ""},
		{"a Kustomization's labels", metav1.ObjectMeta{Labels: map[string]string{
			"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
		}}, "Kustomization flux-system/apps (Flux)"},
		{"a HelmRelease's labels", metav1.ObjectMeta{Labels: map[string]string{
			"helm.toolkit.fluxcd.io/name": "db", "helm.toolkit.fluxcd.io/namespace": "shop",
		}}, "HelmRelease shop/db (Flux)"},
		{"Argo CD's tracking annotation", metav1.ObjectMeta{Annotations: map[string]string{
			"argocd.argoproj.io/tracking-id": "shop:holdfast.dev/PostgresCluster:shop/orders",
		}}, "Application shop (Argo CD)"},
		{"a field manager", metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "argocd-controller"}}}, "Argo CD"},
		{"a manager of the status only", metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "helm", Subresource: "status"}}}, ""},
	} {
		got := ""
		if g := FindTool(&v1alpha1.PostgresCluster{ObjectMeta: test.meta}); g != nil {
			got = g.String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
