package v1alpha1

// NetworkPolicyMode says whether Holdfast keeps a NetworkPolicy for members.
// +kubebuilder:validation:Enum=Managed;None
type NetworkPolicyMode string

// The modes of a NetworkPolicy.
const (
	NetworkPolicyManaged NetworkPolicyMode = "Managed"
	NetworkPolicyNone    NetworkPolicyMode = "None"
)

// NetworkSpec says who may connect to members. NetworkPolicies add up: what the
// managed one allows, no other policy of the namespace closes.
// +kubebuilder:validation:XValidation:rule="self.policy != 'None' || !has(self.from) && !has(self.metricsFrom)",message="network.from and network.metricsFrom have no effect while network.policy is None: remove them, or set network.policy to Managed"
type NetworkSpec struct {
	// Policy Managed keeps a NetworkPolicy of the cluster's name, which allows
	// what from and metricsFrom say, and members, backups and the operator to
	// reach members; None keeps none: policies of your own must allow all of
	// that. Default: Managed.
	// +optional
	// +kubebuilder:default=Managed
	Policy NetworkPolicyMode `json:"policy,omitempty"`

	// From lists who may connect to the database. Default: everyone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="network.from must name at least one peer: leave the field out to let everyone connect, or name the namespace's own pods with podSelector: {}"
	From []NetworkPeer `json:"from,omitempty"`

	// MetricsFrom lists who may read members' metrics. Default: everyone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="network.metricsFrom must name at least one peer: leave the field out to let everyone read metrics, or name the namespace's own pods with podSelector: {}"
	MetricsFrom []NetworkPeer `json:"metricsFrom,omitempty"`
}

// NetworkPeer is who may connect, as in a NetworkPolicy: pods, or a range of
// addresses.
// +kubebuilder:validation:XValidation:rule="has(self.podSelector) || has(self.namespaceSelector) || has(self.ipBlock)",message="a peer needs podSelector, namespaceSelector or ipBlock: say who may connect"
// +kubebuilder:validation:XValidation:rule="!has(self.ipBlock) || !has(self.podSelector) && !has(self.namespaceSelector)",message="a peer has either ipBlock or selectors: list two peers instead"
type NetworkPeer struct {
	// PodSelector selects pods by their labels: in the namespaces that
	// namespaceSelector selects, otherwise in the cluster's own. {} selects all.
	// Default: all pods of the selected namespaces.
	// +optional
	PodSelector *PeerSelector `json:"podSelector,omitempty"`

	// NamespaceSelector selects namespaces by their labels. {} selects all.
	// Default: the cluster's own namespace.
	// +optional
	NamespaceSelector *PeerSelector `json:"namespaceSelector,omitempty"`

	// IPBlock is a range of addresses. Default: none.
	// +optional
	IPBlock *PeerIPBlock `json:"ipBlock,omitempty"`
}

// PeerSelector selects by labels, as a label selector does. All parts must match.
type PeerSelector struct {
	// MatchLabels are labels that must be there with these values. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]PeerLabelValue `json:"matchLabels,omitempty"`

	// MatchExpressions are further requirements. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []PeerRequirement `json:"matchExpressions,omitempty"`
}

// PeerLabelValue is the value of a label.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$')",message="a label's value has at most 63 letters, digits, dashes, underscores and dots, and begins and ends with a letter or digit"
type PeerLabelValue string

// PeerRequirement is one requirement on a label.
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="operators In and NotIn need values, Exists and DoesNotExist take none"
type PeerRequirement struct {
	// Key of the label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`

	// Operator: In, NotIn, Exists or DoesNotExist.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator string `json:"operator"`

	// Values that the label may have, or must not. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// PeerIPBlock is a range of addresses, without parts of it.
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.except) || self.except.all(e, !isCIDR(e) || cidr(self.cidr).containsCIDR(e))",message="ipBlock.except must lie within ipBlock.cidr"
type PeerIPBlock struct {
	// CIDR is the range, such as 10.0.0.0/8 or 2001:db8::/64.
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="ipBlock.cidr must be a range of addresses such as 10.0.0.0/8 or 2001:db8::/64; one address is 10.0.0.1/32"
	CIDR string `json:"cidr"`

	// Except are ranges within it that may not connect. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(e, isCIDR(e))",message="ipBlock.except must hold ranges of addresses such as 10.1.0.0/16"
	Except []string `json:"except,omitempty"`
}
