package memberset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// keepsEarlierTemplate says whether the template of pods stays as operators declared it
// before version 2. As the agents' image does, the version moves with a change that replaces
// pods anyway: an upgrade of the operator changes no StatefulSet, and all members are of one
// template.
func (view *View) keepsEarlierTemplate() bool {
	set := view.Observed.StatefulSet
	if set == nil || set.Annotations[v1alpha1.AnnotationTemplateVersion] != "" || hasInstallerResources(set.Spec.Template.Spec) {
		// Either of both shows version 2: another client may have removed the other.
		return false
	}
	return set.Spec.Template.Annotations[v1alpha1.AnnotationRollout] == view.RolloutHash(view.Desired.Asked) &&
		view.appliedAgent() == view.Desired.AgentImage
}

// hasInstallerResources says whether the installer of agents has resources, which it does not
// in version 1.
func hasInstallerResources(spec corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.InitContainers, func(ctr corev1.Container) bool {
		return ctr.Name == objects.InstallerName && len(ctr.Resources.Limits)+len(ctr.Resources.Requests) > 0
	})
}
