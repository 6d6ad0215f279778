package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InsightsStatus is what members found in the text logs of their databases in the last
// day. It has no text of a log, and at most 2 KiB.
type InsightsStatus struct {
	// Time when this was recorded. It changes at most once in ten minutes.
	Time metav1.Time `json:"time"`
	// Classes of events, the worst first. kubectl holdfast insights explains them.
	// +optional
	// +listType=map
	// +listMapKey=class
	// +kubebuilder:validation:MaxItems=32
	Classes []InsightStatus `json:"classes,omitempty"`
	// Omitted is the number of further classes, for which there is no space here.
	// +optional
	Omitted int32 `json:"omitted,omitempty"`
}

// InsightStatus is one class of events.
type InsightStatus struct {
	// Class of the events, such as Deadlock.
	// +kubebuilder:validation:MaxLength=40
	Class string `json:"class"`
	// Severity: Critical, Error or Warning.
	// +kubebuilder:validation:MaxLength=16
	Severity string `json:"severity"`
	// Count of the events since the members' agents started.
	Count int64 `json:"count"`
	// First is when the class was seen first.
	First metav1.Time `json:"first"`
	// Last is when it was seen last, as of the time of this record.
	Last metav1.Time `json:"last"`
	// Member whose database reported the last one.
	Member string `json:"member"`
}
