package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// States of an archive.
const (
	// ArchiveWaiting: nothing has been archived there yet.
	ArchiveWaiting = "Waiting"
	// ArchiveArchiving: the destination accepts WAL.
	ArchiveArchiving = "Archiving"
	// ArchiveFailing: it does not accept WAL; the condition Degraded says why.
	ArchiveFailing = "Failing"
)

// ArchiveStatus is the state of a cluster's WAL archive.
type ArchiveStatus struct {
	// URL of the destination.
	URL string `json:"url"`
	// Endpoint of the destination.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// State: Waiting, Archiving or Failing.
	State string `json:"state"`
	// MovedAt is when the destination changed last; empty if it never did. What
	// a member stored before that is not in this archive.
	// +optional
	MovedAt *metav1.Time `json:"movedAt,omitempty"`
	// Since is when the archive begins to hold WAL without a gap; empty while it
	// holds none. It does not continue a backup that was begun before that.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// RestorableFrom is the earliest time that can be restored. Every later time
	// can be restored too, up to the end of the archived WAL. It is when the
	// oldest backup that the WAL continues was complete; empty without one.
	// +optional
	RestorableFrom *metav1.Time `json:"restorableFrom,omitempty"`
}
