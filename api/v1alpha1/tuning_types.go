package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TuningMode says whether settings are recommended.
// +kubebuilder:validation:Enum=Off;Recommend
type TuningMode string

// The tuning modes.
const (
	TuningOff       TuningMode = "Off"
	TuningRecommend TuningMode = "Recommend"
)

// TuningSpec says whether settings and resources are recommended by what the members
// measured. None is ever changed by that.
type TuningSpec struct {
	// Mode Recommend reports recommendations in status.recommendations, for a person to
	// commit. Off reports none. Default: Recommend.
	// +optional
	Mode TuningMode `json:"mode,omitempty"`

	// Exclude names settings that are never recommended, such as work_mem, and resources, such
	// as limits.memory. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	Exclude []string `json:"exclude,omitempty"`
}

// RecommendationStatus is a value that a setting, or one of spec.resources, should have.
type RecommendationStatus struct {
	// Field of the spec that declares it, such as spec.parameters.work_mem or
	// spec.resources.requests.cpu.
	// +kubebuilder:validation:MaxLength=128
	Field string `json:"field"`
	// Current value that is in force; none of a resource that is not declared.
	// +kubebuilder:validation:MaxLength=64
	Current string `json:"current"`
	// Value that it should have.
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value"`
	// Evidence is what the members measured, when this was recorded.
	// +kubebuilder:validation:MaxLength=256
	Evidence string `json:"evidence"`
	// Restart says that the members restart, one by one, for it.
	// +optional
	Restart bool `json:"restart,omitempty"`
	// Computed are settings that the spec does not declare, and that change with the value:
	// members compute them from spec.resources.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Computed []string `json:"computed,omitempty"`
	// Since is when it was first recommended.
	Since metav1.Time `json:"since"`
}
