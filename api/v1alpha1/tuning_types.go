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

// TuningSpec says whether settings are recommended by what the members measured. No
// setting is ever changed by that.
type TuningSpec struct {
	// Mode Recommend reports recommendations in status.recommendations, for a person to
	// commit. Off reports none. Default: Recommend.
	// +optional
	Mode TuningMode `json:"mode,omitempty"`

	// Exclude names settings that are never recommended, such as work_mem. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	Exclude []string `json:"exclude,omitempty"`
}

// RecommendationStatus is a value that a setting should have.
type RecommendationStatus struct {
	// Field of the spec that declares the setting, such as spec.parameters.work_mem.
	// +kubebuilder:validation:MaxLength=128
	Field string `json:"field"`
	// Current value that is in force.
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
	// Since is when it was first recommended.
	Since metav1.Time `json:"since"`
}
