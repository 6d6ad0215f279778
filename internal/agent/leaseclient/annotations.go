// Package leaseclient reads and writes the membership record of a group, and names what
// stands on the Lease of a primary. Every write is bound to what was read before it.
package leaseclient

import "time"

// Times of the Leases.
const (
	// LeaseRenewal is the time between two renewals of the Lease of a primary.
	LeaseRenewal = 2 * time.Second
	// LeaseTimeout bounds a request about the membership record.
	LeaseTimeout = 1500 * time.Millisecond
)

// Annotations of the Lease of a primary beside v1alpha1.AnnotationSystemIdentifier. From
// AnnotationTerm on, all but AnnotationCluster are of agents before the record of
// leadership, and are only read.
const (
	// AnnotationPrimary is the holder's pod by name.
	AnnotationPrimary = "holdfast.dev/primary"
	// AnnotationAddress is the IP address of the holder's pod: names are
	// cached for seconds, and a successor has another address.
	AnnotationAddress = "holdfast.dev/address"
	// AnnotationTerm counts the changes of the holder.
	AnnotationTerm = "holdfast.dev/term"
	// AnnotationTimeline is the timeline that the holder writes.
	AnnotationTimeline = "holdfast.dev/timeline"
	// AnnotationCluster is the UID of the cluster whose member claimed it last:
	// a Lease may outlive its cluster.
	AnnotationCluster = "holdfast.dev/cluster-uid"
	// AnnotationCheckpoint is the position of the last checkpoint that a holder
	// had on its disk, on AnnotationTimeline: data that does not go so far is
	// older than the cluster's.
	AnnotationCheckpoint = "holdfast.dev/checkpoint"
	// AnnotationFlushed is how far the holder's WAL was on its disk at the last
	// renewal, on AnnotationTimeline.
	AnnotationFlushed = "holdfast.dev/flushed-position"
	// AnnotationReserved is the highest timeline that was ever reserved for a
	// promotion, whether that came to its end or not.
	AnnotationReserved = "holdfast.dev/reserved-timeline"
	// AnnotationShutdownPosition is the last position of a holder that shut
	// down in order; only a Lease without a holder has it.
	AnnotationShutdownPosition = "holdfast.dev/shutdown-position"
)
