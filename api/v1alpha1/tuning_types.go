package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TuningMode says what becomes of advice about settings.
// +kubebuilder:validation:Enum=Off;Recommend;Apply
type TuningMode string

// The tuning modes.
const (
	TuningOff       TuningMode = "Off"
	TuningRecommend TuningMode = "Recommend"
	TuningApply     TuningMode = "Apply"
)

// TuningSpec says what becomes of advice about settings that the members' measurements
// lead to. Settings in spec.parameters and spec.quota are never changed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Apply' || has(self.window)",message="spec.tuning.window is required in mode Apply: say when settings may be changed, such as {schedule: 0 2 * * *, duration: 2h}",fieldPath=".window"
type TuningSpec struct {
	// Mode Recommend reports advice in status.recommendations, for a person to commit.
	// Apply also tries it, one setting at a time, and takes back what does not help.
	// Off does neither. In Off and Recommend what Apply had changed is withdrawn.
	// Default: Recommend.
	// +optional
	Mode TuningMode `json:"mode,omitempty"`

	// Exclude names settings that are left alone, such as work_mem. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	Exclude []string `json:"exclude,omitempty"`

	// Window is when Apply may change settings. A setting that takes a restart begins an
	// ordinary rolling restart in it, which may end after it.
	// +optional
	Window *TuningWindow `json:"window,omitempty"`
}

// TuningWindow is a time that comes again and again.
type TuningWindow struct {
	// Schedule is when it opens, as a line of cron such as "0 2 * * 6": minute, hour,
	// day of the month, month, day of the week; or @daily, @weekly and the like.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$|^[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]*$')",message="must be five fields, minute, hour, day of the month, month, day of the week, such as 0 2 * * 6; or @hourly, @daily, @weekly, @monthly, @yearly. A time zone goes into timeZone"
	Schedule string `json:"schedule"`

	// TimeZone of the schedule, such as Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// Duration for which it is open, such as 2h. At most a day.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="must be from 1m to 24h"
	Duration metav1.Duration `json:"duration"`
}

// RecommendationStatus is a value that a setting should have, or that it was given.
type RecommendationStatus struct {
	// Field of the spec that declares the setting, such as spec.parameters.work_mem.
	// +kubebuilder:validation:MaxLength=128
	Field string `json:"field"`
	// State: Open, for a person to commit; Trial: in force, and observed; Applied: in
	// force, and it has shown its use; RolledBack: it did not, and was taken back.
	// +kubebuilder:validation:MaxLength=16
	State string `json:"state"`
	// Current value, or that before the change.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Current string `json:"current,omitempty"`
	// Value that it should have.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value,omitempty"`
	// Evidence is what the members measured, when this was recorded.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Evidence string `json:"evidence,omitempty"`
	// Restart says that the members restart, one by one, for it.
	// +optional
	Restart bool `json:"restart,omitempty"`
	// Since is when it came into its state.
	Since metav1.Time `json:"since"`
}
