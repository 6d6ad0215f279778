package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// PostgresFailover says which members may take over as the primary, and what an
// automatic failover may lose.
type PostgresFailover struct {
	// MaxLag is how much acknowledged WAL, in bytes, an automatic failover may lose
	// in asynchronous mode. A member that lacks more does not take over: the cluster
	// is Stalled with the reason NoSafeCandidate until the primary is back, or until
	// a person names a member. Default: no limit.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self))",message="must be a size in bytes, such as 16Mi"
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('1')) >= 0",message="spec.failover.maxLag must be at least 1: remove it for no limit"
	MaxLag *resource.Quantity `json:"maxLag,omitempty"`

	// NoFailover are the ordinals of members that never lead, such as those in
	// another region: [2] for <name>-2. A person can still promote one by name. The
	// member that leads keeps leading until it stops.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=8
	NoFailover []int32 `json:"noFailover,omitempty"`
}
