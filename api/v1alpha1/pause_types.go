package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WritePauseEvent is what paused writes.
// +kubebuilder:validation:Enum=Restart;Switchover;Failover
type WritePauseEvent string

// The events.
const (
	// WritePauseRestart: the member that took writes restarted, and took them again.
	WritePauseRestart WritePauseEvent = "Restart"
	// WritePauseSwitchover: another member took over in order. Restarts of the primary
	// beside replicas, drains and requests are such events.
	WritePauseSwitchover WritePauseEvent = "Switchover"
	// WritePauseFailover: another member took over after the loss of the one before.
	WritePauseFailover WritePauseEvent = "Failover"
)

// WritePauseEvents are all of them.
var WritePauseEvents = []WritePauseEvent{WritePauseRestart, WritePauseSwitchover, WritePauseFailover}

// MaxWritePauses is how many pauses of each event a status keeps.
const MaxWritePauses = 3

// WritePause is a time in which no member took writes.
type WritePause struct {
	// Event that paused them: Restart, Switchover or Failover.
	Event WritePauseEvent `json:"event"`
	// Time when a member took writes again.
	Time metav1.Time `json:"time"`
	// Duration of the pause, such as 1.3s. It is measured by what members report to the
	// operator, to about a quarter of a second.
	Duration metav1.Duration `json:"duration"`
}
