package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TuningMode says what becomes of recommended settings.
// +kubebuilder:validation:Enum=Off;Recommend;Apply
type TuningMode string

// The tuning modes.
const (
	TuningOff       TuningMode = "Off"
	TuningRecommend TuningMode = "Recommend"
	TuningApply     TuningMode = "Apply"
)

// TuningSpec says what becomes of settings and resources that what the members measured
// speaks for.
type TuningSpec struct {
	// Mode Recommend reports recommendations in status.recommendations, for a person to
	// commit, and changes nothing. "Off", in quotes, reports none: without them YAML reads
	// false. Apply, of PostgreSQL only, also tries those that need no restart, one at a time
	// for a day: a value that is better stays, and any other is rolled back. It changes no
	// setting that spec.parameters declares. Default: Recommend.
	// +optional
	Mode TuningMode `json:"mode,omitempty"`

	// Exclude names settings that are never recommended nor tried, such as work_mem, and
	// resources that are never recommended, such as limits.memory. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	Exclude []string `json:"exclude,omitempty"`

	// Window is when a trial may begin, with mode Apply. A rollback does not wait for it.
	// Default: at any time.
	// +optional
	Window *TuningWindow `json:"window,omitempty"`

	// ObserveHours is how many hours are measured before a trial, and in it, with mode
	// Apply. Less than a day is for a load that is the same at any time of the day.
	// Default: 24.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=24
	ObserveHours *int32 `json:"observeHours,omitempty"`
}

// TuningWindow is a time of each day.
type TuningWindow struct {
	// Start of the window, as hours and minutes, such as "22:00".
	// +required
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",message="must be a time of the day, in quotes, from \"00:00\" to \"23:59\""
	Start string `json:"start"`

	// End of the window, such as "04:00". One that is before start is on the next day.
	// +required
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:XValidation:rule="self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",message="must be a time of the day, in quotes, from \"00:00\" to \"23:59\""
	End string `json:"end"`

	// TimeZone of both, by its name in the IANA database, such as Europe/Berlin.
	// Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="must be a time zone by its name in the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
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
	// Value that it should have. With mode Apply it is empty where something speaks for a larger
	// value, and the memory or the volume allows none: untried says which.
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
	// Untried says why mode Apply does not try the value now. It changes at most once an hour
	// for what comes and goes by itself.
	// +optional
	Untried *UntriedStatus `json:"untried,omitempty"`
}

// UntriedStatus is why mode Apply does not try a value that is recommended.
type UntriedStatus struct {
	// Reason for programs: OnlyRecommended, Declared, MemoryLimit, VolumeSize, RecentTrial,
	// AnotherTrial, VolumeUsage, Measuring, WindowClosed, NotSettled or NoEvidence.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// Message for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// Since is when this was recorded.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// TuningStatus is what mode Apply remembers. The members' settings are computed from it:
// what is not in it, or not allowed by the spec, is not tuned. It is written as a whole, and
// no field of it is required, so that a part that another client wrote never keeps the
// operator from writing it.
//
// +structType=atomic
type TuningStatus struct {
	// Settings that were tried, and stay until spec.parameters declares them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Settings []TunedSettingStatus `json:"settings,omitempty"`
	// Trial of a setting that is under way.
	// +optional
	Trial *TuningTrialStatus `json:"trial,omitempty"`
	// Resting are settings that are not tried for a time.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Resting []RestingSettingStatus `json:"resting,omitempty"`
}

// TunedSettingStatus is a value that stays, since a trial showed it to be better.
type TunedSettingStatus struct {
	// Name of the setting, such as work_mem.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`
	// Value that is in force.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value,omitempty"`
	// From is the value before the trial.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	From string `json:"from,omitempty"`
	// Evidence is what the trial showed.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Evidence string `json:"evidence,omitempty"`
	// Basis is a digest of the memory, the volume and the declared memory settings. The value
	// is released when it is another one.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Basis string `json:"basis,omitempty"`
	// Since is when the trial ended.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// TuningTrialStatus is a value that is in force to see whether it is better.
type TuningTrialStatus struct {
	// Name of the setting, such as work_mem.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`
	// Value that is tried.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value,omitempty"`
	// From is the value before, which is in force again if the trial fails.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	From string `json:"from,omitempty"`
	// Evidence is what the members measured before.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Evidence string `json:"evidence,omitempty"`
	// Primary is the member whose load is compared. The trial ends when another one leads.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Primary string `json:"primary,omitempty"`
	// SpecHash is of the spec's fields that change what is measured. The trial ends when it is another one.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SpecHash string `json:"specHash,omitempty"`
	// Since is when the trial began.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
}

// RestingSettingStatus is a setting that is not tried for a time.
type RestingSettingStatus struct {
	// Name of the setting, such as work_mem.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`
	// Value that was tried.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value,omitempty"`
	// Reason why it does not stay.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
	// Quarantined says that it was tried, and is no better.
	// +optional
	Quarantined bool `json:"quarantined,omitempty"`
	// Since is when the value before was in force again.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// Until is when it may be tried again.
	// +optional
	Until metav1.Time `json:"until,omitzero"`
}
