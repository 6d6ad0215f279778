package plugin

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gitTool is what applies an object from Git or from a chart.
type gitTool struct {
	// tool is Flux, Argo CD or Helm.
	tool string
	// object of the tool, such as Kustomization flux-system/apps; may be empty.
	object string
	// pause is the command that makes the tool leave the object alone for a
	// while; empty where there is none.
	pause string
}

// String names the tool and its object.
func (g *gitTool) String() string {
	if g.object == "" {
		return g.tool
	}
	return g.object + " (" + g.tool + ")"
}

// gitOwner recognises what applies an object, by the labels and annotations
// that the tools leave, and otherwise by their field managers; nil for nobody.
func gitOwner(obj client.Object) *gitTool {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	flux := func(kind, prefix string) *gitTool {
		name := labels[prefix+"/name"]
		if name == "" {
			return nil
		}
		namespace := labels[prefix+"/namespace"]
		return &gitTool{
			tool: "Flux", object: fmt.Sprintf("%s %s/%s", kind, namespace, name),
			pause: fmt.Sprintf("flux suspend %s %s -n %s", strings.ToLower(kind), name, namespace),
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
		if g := byManager(m); g != nil {
			return g
		}
	}
	return nil
}

func argoApplication(app string) *gitTool {
	return &gitTool{tool: "Argo CD", object: "Application " + app, pause: "argocd app set " + app + " --sync-policy none"}
}

func byManager(m metav1.ManagedFieldsEntry) *gitTool {
	if m.Subresource != "" {
		return nil
	}
	switch m.Manager {
	case "kustomize-controller", "helm-controller":
		return &gitTool{tool: "Flux"}
	case "argocd-controller", "argocd-application-controller":
		return &gitTool{tool: "Argo CD"}
	case "helm":
		return &gitTool{tool: "Helm"}
	}
	return nil
}
