// Package gitops recognises the tool that applies an object from Git or from a
// chart.
package gitops

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Tool applies an object from Git or from a chart.
type Tool struct {
	// Name is Flux, Argo CD or Helm.
	Name string
	// Object of the tool, such as Kustomization flux-system/apps; may be empty.
	Object string
	// Pause is the command that makes the tool leave the object alone for a
	// while; empty where there is none.
	Pause string
}

// String names the tool and its object.
func (g *Tool) String() string {
	if g.Object == "" {
		return g.Name
	}
	return g.Object + " (" + g.Name + ")"
}

// FindTool recognises the tool that applies an object, by the labels and
// annotations that the tools leave, and otherwise by their field managers. It
// returns nil when there is no sign of a tool.
func FindTool(obj client.Object) *Tool {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	flux := func(kind, prefix string) *Tool {
		name := labels[prefix+"/name"]
		if name == "" {
			return nil
		}
		namespace := labels[prefix+"/namespace"]
		return &Tool{
			Name: "Flux", Object: fmt.Sprintf("%s %s/%s", kind, namespace, name),
			Pause: fmt.Sprintf("flux suspend %s %s -n %s", strings.ToLower(kind), name, namespace),
		}
	}
	if g := flux("Kustomization", "kustomize.toolkit.fluxcd.io"); g != nil {
		return g
	}
	if g := flux("HelmRelease", "helm.toolkit.fluxcd.io"); g != nil {
		return g
	}
	if id := annotations["argocd.argoproj.io/tracking-id"]; id != "" {
		app, _, _ := strings.Cut(id, ":")
		return argoApplication(app)
	}
	if app := labels["argocd.argoproj.io/instance"]; app != "" {
		return argoApplication(app)
	}
	for _, m := range obj.GetManagedFields() {
		if g := toolOfManager(m); g != nil {
			return g
		}
	}
	return nil
}

func argoApplication(app string) *Tool {
	return &Tool{Name: "Argo CD", Object: "Application " + app, Pause: "argocd app set " + app + " --sync-policy none"}
}

func toolOfManager(m metav1.ManagedFieldsEntry) *Tool {
	if m.Subresource != "" {
		return nil
	}
	switch m.Manager {
	case "kustomize-controller", "helm-controller":
		return &Tool{Name: "Flux"}
	case "argocd-controller", "argocd-application-controller":
		return &Tool{Name: "Argo CD"}
	case "helm":
		return &Tool{Name: "Helm"}
	}
	return nil
}

// appliers are the field managers of the tools, the likeliest first.
var appliers = []string{"kustomize-controller", "helm-controller", "argocd-controller", "argocd-application-controller", "flux", "helm"}

// FindApplier is the field manager that applies an object's spec on the server: that of a
// known tool, or the only one that is not Holdfast's; empty for none.
func FindApplier(obj client.Object) string {
	var found []string
	for _, m := range obj.GetManagedFields() {
		own := m.Manager == "holdfast" || strings.HasPrefix(m.Manager, "holdfast-") || m.Manager == "kubectl-holdfast"
		if m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || own || m.FieldsV1 == nil {
			continue
		}
		if bytes.Contains(m.FieldsV1.GetRawBytes(), []byte(`"f:spec"`)) {
			found = append(found, m.Manager)
		}
	}
	for _, name := range appliers {
		if slices.Contains(found, name) {
			return name
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return ""
}
