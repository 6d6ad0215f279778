package primarylease

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// AnnotationRecord holds, as JSON, what the Lease's own fields have no place for.
const AnnotationRecord = "holdfast.dev/leadership"

// written is the form of a lease.Record in AnnotationRecord. The holder stands in
// spec.holderIdentity, so that an edit of either is noticed.
type written struct {
	HolderVolume    string `json:"holderVolume,omitempty"`
	Term            int64  `json:"term"`
	Timeline        int64  `json:"timeline"`
	HighestTimeline int64  `json:"highestTimeline"`
	ReachedTimeline int64  `json:"reachedTimeline"`
	ForcedTimeline  int64  `json:"forcedTimeline,omitempty"`
	// Duration repeats spec.leaseDurationSeconds, so that an edit of that is noticed.
	Duration     int64    `json:"leaseDurationSeconds,omitempty"`
	Revision     int64    `json:"revision"`
	Volumes      []string `json:"volumes"`
	Quorum       *quorum  `json:"quorum,omitempty"`
	Acknowledged string   `json:"acknowledged,omitempty"`
	Shutdown     string   `json:"shutdown,omitempty"`
	Successor    string   `json:"successor,omitempty"`
}

type quorum struct {
	Volumes []string `json:"volumes"`
	Write   int      `json:"write"`
}

// writeRecord puts a record into a Lease, which is changed in place. A renewal
// changes spec.renewTime even if the machine's clock stands still: the API server
// gives an update that changes nothing no new version.
func writeRecord(l *coordinationv1.Lease, r lease.Record, now time.Time) error {
	text, err := json.Marshal(encodeRecord(r))
	if err != nil {
		return fmt.Errorf("encode the Lease's record: %w", err)
	}
	l.Annotations = maps.Clone(l.Annotations)
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[AnnotationRecord] = string(text)
	l.Annotations[v1alpha1.AnnotationSystemIdentifier] = r.SystemIdentifier
	l.Annotations[leaseclient.AnnotationPrimary] = r.HolderPod
	renewal := metav1.NewMicroTime(now.Truncate(time.Microsecond))
	if l.Spec.RenewTime != nil && l.Spec.RenewTime.Equal(&renewal) {
		renewal = metav1.NewMicroTime(renewal.Add(time.Microsecond))
	}
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != r.HolderUID {
		l.Spec.AcquireTime = &renewal
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime = &r.HolderUID, &renewal
	l.Spec.LeaseDurationSeconds = new(int32(cmp.Or(r.Duration, lease.DefaultDuration) / time.Second))
	l.Spec.LeaseTransitions = new(int32(min(r.Term, 1<<31-1)))
	return nil
}

func encodeRecord(r lease.Record) written {
	w := written{
		HolderVolume: r.HolderVolume, Term: r.Term, Timeline: r.Timeline, HighestTimeline: r.HighestTimeline,
		ReachedTimeline: r.ReachedTimeline, ForcedTimeline: r.ForcedTimeline, Duration: int64(r.Duration / time.Second), Revision: r.Revision, Volumes: r.Volumes,
		Acknowledged: formatPosition(r.Acknowledged), Successor: r.Successor,
	}
	if r.Quorum != nil {
		w.Quorum = &quorum{Volumes: r.Quorum.Volumes, Write: r.Quorum.Write}
	}
	if r.Shutdown != nil {
		w.Shutdown = formatPosition(*r.Shutdown)
	}
	return w
}

// readRecord is the record in a Lease. One that cannot be read is the zero value,
// which is not valid: an edited Lease elects no member.
func readRecord(l *coordinationv1.Lease) lease.Record {
	var w written
	if json.Unmarshal([]byte(l.Annotations[AnnotationRecord]), &w) != nil {
		return lease.Record{}
	}
	acknowledged, isPosition := parsePosition(w.Acknowledged)
	shutdown, isShutdown := parsePosition(w.Shutdown)
	isEdited := w.Duration != 0 && (l.Spec.LeaseDurationSeconds == nil || int64(*l.Spec.LeaseDurationSeconds) != w.Duration)
	if !isPosition || !isShutdown || isEdited {
		return lease.Record{}
	}
	r := lease.Record{
		HolderPod: l.Annotations[leaseclient.AnnotationPrimary], HolderVolume: w.HolderVolume,
		Term: w.Term, Timeline: w.Timeline, HighestTimeline: w.HighestTimeline, ReachedTimeline: w.ReachedTimeline, ForcedTimeline: w.ForcedTimeline,
		SystemIdentifier: l.Annotations[v1alpha1.AnnotationSystemIdentifier],
		Duration:         time.Duration(w.Duration) * time.Second,
		Revision:         w.Revision, Volumes: w.Volumes, Acknowledged: acknowledged, Successor: w.Successor,
	}
	if l.Spec.HolderIdentity != nil {
		r.HolderUID = *l.Spec.HolderIdentity
	}
	if w.Quorum != nil {
		r.Quorum = &lease.Quorum{Volumes: w.Quorum.Volumes, Write: w.Quorum.Write}
	}
	if w.Shutdown != "" {
		r.Shutdown = &shutdown
	}
	return r
}

// formatPosition writes a timeline and PostgreSQL's form of a position in the WAL;
// nothing for an unknown one.
func formatPosition(p lease.Position) string {
	if p == (lease.Position{}) {
		return ""
	}
	return fmt.Sprintf("%d:%X/%X", p.Timeline, p.LSN>>32, p.LSN&0xFFFFFFFF)
}

func parsePosition(text string) (p lease.Position, ok bool) {
	if text == "" {
		return lease.Position{}, true
	}
	var high, low uint64
	n, err := fmt.Sscanf(text, "%d:%X/%X", &p.Timeline, &high, &low)
	p.LSN = high<<32 | low
	ok = err == nil && n == 3 && high < 1<<32 && low < 1<<32 && formatPosition(p) == text && p.Timeline > 0
	return p, ok
}

// version names the state of a Lease.
func version(l *coordinationv1.Lease) lease.Version {
	return lease.Version{UID: string(l.UID), Resource: l.ResourceVersion}
}
