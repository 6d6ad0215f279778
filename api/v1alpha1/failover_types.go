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
	// member that leads keeps leading until it stops. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=8
	NoFailover []int32 `json:"noFailover,omitempty"`

	// LeaseDuration is how long the Lease of the primary must have been without a
	// renewal before another member is elected: whole seconds from 10s to 60s. The
	// primary renews after a fifth of it, and has stopped after seven tenths. A longer
	// one suits an API server that is slow or away for seconds; each failover takes
	// longer by as much. Default: 10s.
	// +optional
	// +kubebuilder:default:="10s"
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^([1-5][0-9]|60)s$')",message="spec.failover.leaseDuration must be whole seconds from 10s to 60s, such as 15s"
	LeaseDuration string `json:"leaseDuration,omitempty"`
}

// SynchronousMode says whether commits wait for standbys.
// +kubebuilder:validation:Enum=Off;Quorum
type SynchronousMode string

// The synchronous modes.
const (
	// SynchronousOff acknowledges a commit when the primary has flushed it.
	SynchronousOff SynchronousMode = "Off"
	// SynchronousQuorum acknowledges a commit when a number of standbys have flushed
	// it, too.
	SynchronousQuorum SynchronousMode = "Quorum"
)

// UnavailablePolicy says what becomes of commits while too few standbys are there.
// +kubebuilder:validation:Enum=Block;Degrade
type UnavailablePolicy string

// The policies.
const (
	// UnavailableBlock has commits wait.
	UnavailableBlock UnavailablePolicy = "Block"
	// UnavailableDegrade has fewer standbys acknowledge them.
	UnavailableDegrade UnavailablePolicy = "Degrade"
)

// PostgresSynchronous says which commits standbys have flushed before clients see them
// acknowledged.
type PostgresSynchronous struct {
	// Mode is "Off", or Quorum: a commit is acknowledged once any number of the
	// standbys that may lead have flushed it. A failover then loses no acknowledged
	// commit. Write "Off" in quotes: without them it is false to YAML. Default:
	// "Off".
	// +optional
	// +kubebuilder:default:="Off"
	Mode SynchronousMode `json:"mode,omitempty"`

	// Number of standbys that flush a commit before it is acknowledged: less than
	// spec.replicas. Default: 1.
	// +optional
	// +kubebuilder:default:=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Number int32 `json:"number,omitempty"`

	// WhenUnavailable says what becomes of commits while fewer standbys stream. Block:
	// they wait, and no acknowledged commit is ever lost. Degrade: those that stream
	// suffice, if need be none. What is acknowledged then may exist on fewer members,
	// and no member that may lack it takes over by itself. Default: Block.
	// +optional
	// +kubebuilder:default:="Block"
	WhenUnavailable UnavailablePolicy `json:"whenUnavailable,omitempty"`
}
