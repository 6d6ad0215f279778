package primarylease

import (
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
)

// Facts are what a Lease says beside its record.
type Facts struct {
	// Known says that the Lease was there when it was read or written last.
	Known bool
	// HasRecord says that it has a record of its leadership, valid or not. One of an
	// earlier version has none.
	HasRecord bool
	// Cluster is the UID of the cluster whose member wrote it last.
	Cluster string
	// HolderUID is that of spec.holderIdentity, and Address the IP address of its pod.
	HolderUID, Address string
	// Renewed is when it was renewed last, by its writer's clock.
	Renewed time.Time
	// Earlier is what an agent of an earlier version recorded.
	Earlier EarlierRecord
}

// EarlierRecord is what agents before the record of leadership wrote. Then member 0
// alone could lead.
type EarlierRecord struct {
	HolderPod        string
	SystemIdentifier string
	Term             int64
	// Timeline of the positions, and Reserved, the highest that was ever reserved.
	Timeline, Reserved int64
	// Positions, as PostgreSQL writes them: of the last checkpoint on the disk, of the
	// last renewal, and of a shutdown in order. Empty for unknown.
	Checkpoint, Flushed, Shutdown string
}

// ReadFacts is what the Lease said when it was read or written last. It sends no
// request.
func (c *Client) ReadFacts() Facts {
	latest := c.latest.Load()
	if latest == nil || c.missing.Load() {
		return Facts{}
	}
	return factsOf(latest)
}

func factsOf(l *coordinationv1.Lease) Facts {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(l.Annotations[name], 10, 64)
		return n
	}
	_, hasRecord := l.Annotations[AnnotationRecord]
	f := Facts{
		Known: true, HasRecord: hasRecord,
		Cluster: l.Annotations[leaseclient.AnnotationCluster], Address: l.Annotations[leaseclient.AnnotationAddress],
		Earlier: EarlierRecord{
			HolderPod: l.Annotations[leaseclient.AnnotationPrimary], SystemIdentifier: l.Annotations[v1alpha1.AnnotationSystemIdentifier],
			Term: number(leaseclient.AnnotationTerm), Timeline: number(leaseclient.AnnotationTimeline), Reserved: number(leaseclient.AnnotationReserved),
			Checkpoint: l.Annotations[leaseclient.AnnotationCheckpoint], Flushed: l.Annotations[leaseclient.AnnotationFlushed],
			Shutdown: l.Annotations[leaseclient.AnnotationShutdownPosition],
		},
	}
	if l.Spec.HolderIdentity != nil {
		f.HolderUID = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		f.Renewed = l.Spec.RenewTime.Time
	}
	return f
}
