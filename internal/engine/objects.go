package engine

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Identity is what the objects of one cluster are named and owned by.
type Identity struct {
	Cluster v1alpha1.Cluster
	GVK     schema.GroupVersionKind
	// App is the value of app.kubernetes.io/name, such as postgresql.
	App string
}

// Selector selects the pods of the cluster's members.
func (i Identity) Selector() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: i.Cluster.GetName(),
		v1alpha1.LabelKind:    strings.ToLower(i.GVK.Kind),
	}
}

// Labels are those of every owned object. Component says what it is for.
func (i Identity) Labels(component string) map[string]string {
	labels := i.Selector()
	labels["app.kubernetes.io/name"] = i.App
	labels["app.kubernetes.io/instance"] = i.Cluster.GetName()
	labels["app.kubernetes.io/component"] = component
	labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	return labels
}

// Owner is the controller reference that lets garbage collection take an
// object along with its cluster.
func (i Identity) Owner() *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(i.GVK.GroupVersion().String()).WithKind(i.GVK.Kind).
		WithName(i.Cluster.GetName()).WithUID(i.Cluster.GetUID()).
		WithController(true).WithBlockOwnerDeletion(true)
}

// DataOwners is Owner for what holds data, credentials or trust: empty while
// the deletion policy retains it.
func (i Identity) DataOwners() []*metav1ac.OwnerReferenceApplyConfiguration {
	if i.Cluster.Common().DeletionPolicy == v1alpha1.DeletionDelete {
		return []*metav1ac.OwnerReferenceApplyConfiguration{i.Owner()}
	}
	return nil
}

// RoleSelector selects the members in a role.
func (i Identity) RoleSelector(role string) map[string]string {
	s := i.Selector()
	s[v1alpha1.LabelRole] = role
	return s
}
