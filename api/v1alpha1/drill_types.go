package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupVerify says when the newest good backup is restored on trial.
type BackupVerify struct {
	// Schedule of restore drills, as a line of cron such as "0 5 * * 0": minute,
	// hour, day of the month, month, day of the week; or @daily, @weekly and the
	// like. Its time zone is that of backups.
	// +required
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(yearly|annually|monthly|weekly|daily|midnight|hourly)$|^[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9*?][0-9*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]* +[0-9A-Za-z*?][0-9A-Za-z*?,/-]*$')",message="must be five fields, minute, hour, day of the month, month, day of the week, such as 0 5 * * 0; or @hourly, @daily, @weekly, @monthly, @yearly. The time zone is that of spec.backup.timeZone"
	Schedule string `json:"schedule"`

	// Resources of the Job that restores on trial. Default: those of backup, and
	// where it has none, as much as a member has, with requests of 100m and
	// 256Mi and limits of 2 and 1Gi at least.
	// +optional
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.limits) || !(k in self.limits) || isQuantity(string(self.limits[k])))",message="a limit must be a quantity: memory such as 1Gi or 512Mi, cpu such as 2 or 500m"
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.requests) || !(k in self.requests) || isQuantity(string(self.requests[k])))",message="a request must be a quantity: memory such as 1Gi or 512Mi, cpu such as 2 or 500m"
	// +kubebuilder:validation:XValidation:rule="['cpu','memory','ephemeral-storage'].all(k, !has(self.requests) || !has(self.limits) || !(k in self.requests) || !(k in self.limits) || !isQuantity(string(self.requests[k])) || !isQuantity(string(self.limits[k])) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="a request must not be more than the limit of the same name: lower resources.requests, or raise resources.limits"
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Results of a restore drill.
const (
	// DrillPassed: the backup was restored, and all that was checked was good.
	DrillPassed = "Passed"
	// DrillFailed: it was not, or could not be restored.
	DrillFailed = "Failed"
)

// DrillStatus is what restore drills of a cluster have shown.
type DrillStatus struct {
	// Running is the drill that is under way.
	// +optional
	Running *DrillRun `json:"running,omitempty"`
	// LastTime is when the last one that has ended was begun.
	// +optional
	LastTime *metav1.Time `json:"lastTime,omitempty"`
	// LastPassedTime is when the last one was begun that has passed.
	// +optional
	LastPassedTime *metav1.Time `json:"lastPassedTime,omitempty"`
	// LastPassedBackup is what was restored in that one. Retention leaves it until
	// another one passes.
	// +optional
	LastPassedBackup string `json:"lastPassedBackup,omitempty"`
	// Result of the last one: Passed or Failed.
	// +optional
	Result string `json:"result,omitempty"`
	// Backup that was restored in it.
	// +optional
	Backup string `json:"backup,omitempty"`
	// Duration of it, such as 4m12s.
	// +optional
	Duration string `json:"duration,omitempty"`
	// Message says what it failed with, 1 KiB of it at most; empty where it has
	// passed.
	// +optional
	Message string `json:"message,omitempty"`
	// Checked says what was found to be good.
	// +optional
	// +listType=atomic
	Checked []string `json:"checked,omitempty"`
	// Job that it was done by; it is gone.
	// +optional
	Job string `json:"job,omitempty"`
	// NextTime is the next slot of the schedule.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`
}

// DrillRun is a restore drill that is under way.
type DrillRun struct {
	// Job that does it.
	Job string `json:"job"`
	// Backup that is restored in it: its data stays until the drill has ended.
	Backup string `json:"backup"`
	// StartTime is when it was begun.
	StartTime metav1.Time `json:"startTime"`
}

// InfixDrill of the names of Jobs and volumes of restore drills: what follows is
// their slot.
const InfixDrill = "-drill-"
