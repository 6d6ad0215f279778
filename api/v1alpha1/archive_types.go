package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// States of an archive.
const (
	// ArchiveWaiting: nothing has been archived there yet.
	ArchiveWaiting = "Waiting"
	// ArchiveArchiving: the destination takes the log.
	ArchiveArchiving = "Archiving"
	// ArchiveFailing: it does not; the condition Degraded says why.
	ArchiveFailing = "Failing"
)

// ArchiveStatus is where the archive of a cluster's log stands.
type ArchiveStatus struct {
	// URL of the destination, and its Endpoint.
	URL string `json:"url"`
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// State: Waiting, Archiving or Failing.
	State string `json:"state"`
	// MovedAt is when the destination was another one last; empty where it was
	// none. What a member stored earlier does not count as stored here.
	// +optional
	MovedAt *metav1.Time `json:"movedAt,omitempty"`
	// Since when the log is there without a hole, as far as it was archived;
	// empty while there is none. A backup that was begun earlier is not continued
	// by it.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// RestorableFrom is the earliest moment from which on every later one can be
	// restored, as far as the log was archived: when the oldest backup was
	// complete that the log continues. Empty while there is no such backup.
	// +optional
	RestorableFrom *metav1.Time `json:"restorableFrom,omitempty"`
}
