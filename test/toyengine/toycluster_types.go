package toyengine

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// GroupVersion of the kind: nothing generic depends on the group of a cluster.
var GroupVersion = schema.GroupVersion{Group: "toy.example.com", Version: "v1"}

// clusterKind is the name of the kind.
const clusterKind = "ToyCluster"

// AddToScheme registers the kind.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ToyCluster{}, &ToyClusterList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// ToyClusterSpec declares a toy cluster.
type ToyClusterSpec struct {
	v1alpha1.CommonSpec `json:",inline"`
	// Version of the database.
	Version string `json:"version"`
	// Storage is the volume of each member.
	Storage v1alpha1.StorageSpec `json:"storage"`
	// Greeting is what each member answers its clients. It is set through the
	// database itself. Default: none.
	Greeting string `json:"greeting,omitempty"`
}

// ToyClusterStatus is the observed state of a toy cluster.
type ToyClusterStatus struct {
	v1alpha1.CommonStatus `json:",inline"`
}

// ToyCluster is a cluster of a database that does nothing but greet.
type ToyCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ToyClusterSpec   `json:"spec"`
	Status ToyClusterStatus `json:"status,omitempty"`
}

// ToyClusterList is a list of ToyCluster.
type ToyClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToyCluster `json:"items"`
}

var _ v1alpha1.Cluster = &ToyCluster{}

// Common returns the shared part of the spec.
func (c *ToyCluster) Common() *v1alpha1.CommonSpec { return &c.Spec.CommonSpec }

// CommonStatus returns the shared part of the status.
func (c *ToyCluster) CommonStatus() *v1alpha1.CommonStatus { return &c.Status.CommonStatus }

// GetConditions returns the conditions.
func (c *ToyCluster) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *ToyCluster) SetConditions(l []metav1.Condition) { c.Status.Conditions = l }

// DeepCopyInto copies the cluster into out.
func (c *ToyCluster) DeepCopyInto(out *ToyCluster) {
	*out = *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	c.Spec.DeepCopyInto(&out.Spec.CommonSpec)
	c.Spec.Storage.DeepCopyInto(&out.Spec.Storage)
	c.Status.DeepCopyInto(&out.Status.CommonStatus)
}

// DeepCopy copies the cluster.
func (c *ToyCluster) DeepCopy() *ToyCluster {
	out := new(ToyCluster)
	c.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (c *ToyCluster) DeepCopyObject() runtime.Object { return c.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (l *ToyClusterList) DeepCopyObject() runtime.Object {
	out := &ToyClusterList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}
