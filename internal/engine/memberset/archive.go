package memberset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// ArchiveView is what is known of the archive of the members' log: what the member says of it
// that leads.
type ArchiveView struct {
	*Judgement
	// Leader is its ordinal, and Status what it says; nil while none is known to lead.
	Leader int
	Status *agentapi.Status
}

// ArchiveRecheck is how often it is checked whether an archive has begun: older
// agents do not report that, and no watch reports that time passes.
const ArchiveRecheck = 15 * time.Second

// JudgeArchive says what is wrong with the archive. It is never a reason to hold anything up:
// the database goes on.
func (j ArchiveView) JudgeArchive() {
	if j.Status != nil {
		j.judgeArchiver(j.Leader, j.Status)
	}
	if gap := j.openGap(); gap != nil {
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveGap,
			"the archive lacks the %s from %s to %s: no moment after %s can be restored, until backup %s, or another that is begun now, is complete",
			strings.TrimPrefix(j.Log, "the "), gap.From, gap.To, formatTime(gap.Begun), j.Named(j.gapSuffix(gap)))
	}
}

// judgeArchiver says what is wrong with the archive by what the leader reports of it.
func (j ArchiveView) judgeArchiver(n int, m *agentapi.Status) {
	a := m.Archive
	switch {
	case a == nil && j.Archive() != nil && j.Standings[n].IsDone():
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveFailing,
			"%s is not archived: the agent of member %s has the version %s, which knows of no archive; set the annotation %s=ID to have the operator's own in all members", j.Log, j.PodName(n), m.AgentVersion, v1alpha1.AnnotationUpdateAgents)
	case a == nil:
	case a.Gap != nil && a.Gap.Ended.IsZero():
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveGap, "%s", j.gapMessage(n, a))
	case a.Late:
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveFailing, "%s is not archived since %s%s", j.Log, formatTime(a.Oldest), explainFault(a))
	case a.Error != "":
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveFailing, "%s is not archived%s", j.Log, explainFault(a))
	}
}

// gapMessage says why the log is not kept for the archive, what that means, and what
// to do.
func (j ArchiveView) gapMessage(ordinal int, a *agentapi.ArchiveStatus) string {
	cause, remedy := "spec.backup.walBudget is used up", "Raise spec.backup.walBudget"
	if a.GapCause == agentapi.GapDiskSpace {
		cause = fmt.Sprintf("volume %s is short of disk space while the store of spec.backup.destination takes %s too slowly or not at all", j.VolumeName(ordinal), j.Log)
		remedy = "Raise spec.storage.size"
	}
	return fmt.Sprintf("%s: %s from %s on is discarded, so that the database goes on, and no moment after %s can be restored until the archive goes on and another backup is complete%s. %s, or make the store of spec.backup.destination take %s again",
		cause, j.Log, a.Gap.From, formatTime(a.Gap.Begun), explainFault(a), remedy, j.Log)
}

func explainFault(a *agentapi.ArchiveStatus) string {
	if a.Error == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(a.Error, ".")
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return "the beginning"
	}
	return t.UTC().Format(time.RFC3339)
}

// openGap is a hole in the archive that no good backup has been begun after;
// nil for none.
func (j ArchiveView) openGap() *agentapi.ArchiveGap {
	if j.Status == nil || j.Status.Archive == nil {
		return nil
	}
	gap := j.Status.Archive.Gap
	if gap == nil || gap.Ended.IsZero() {
		return nil
	}
	if last := j.Cluster.CommonStatus().LastBackup; last != nil && !last.Time.Before(&metav1.Time{Time: afterGap(gap)}) {
		return nil
	}
	return gap
}

// afterGap is the first second that begins when a gap is over. Backups say in whole
// seconds when they were begun: one of the second in which the gap ended may have
// been begun before.
func afterGap(gap *agentapi.ArchiveGap) time.Time {
	return gap.Ended.Add(time.Second - 1).Truncate(time.Second)
}

// gapSuffix names the backup that a gap is followed by: one for each, of each
// cluster that had the name.
func (j ArchiveView) gapSuffix(gap *agentapi.ArchiveGap) string {
	sum := sha256.Sum256([]byte(string(j.Cluster.GetUID()) + " " + gap.From + " " + gap.To))
	return "-gap-" + hex.EncodeToString(sum[:4])
}

// DemandBackup is the backup that is wanted now, whatever the schedule; nil for none.
// Without one that was begun since, the archive is worth nothing.
func (j ArchiveView) DemandBackup(archive *v1alpha1.ArchiveStatus, now time.Time) *engine.Demand {
	if gap := j.openGap(); gap != nil {
		if now.Before(afterGap(gap)) {
			return nil // it would not count, and is made once
		}
		return &engine.Demand{Name: j.Named(j.gapSuffix(gap)), Since: afterGap(gap)}
	}
	if archive == nil || archive.State != v1alpha1.ArchiveArchiving || archive.Since == nil {
		return nil
	}
	if last := j.Cluster.CommonStatus().LastBackup; last != nil && !last.Time.Before(archive.Since) {
		return nil
	}
	if was := j.Cluster.CommonStatus().Archive; was == nil || !was.Since.Equal(archive.Since) {
		return nil // its name follows from what is recorded
	}
	return &engine.Demand{Name: j.Named(j.firstSuffix(archive)), Since: archive.Since.Time}
}

// firstSuffix names the first backup that an archive continues: one for each
// time that the archive of a cluster begins.
func (j ArchiveView) firstSuffix(a *v1alpha1.ArchiveStatus) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", j.Cluster.GetUID(), a.URL, a.Endpoint, a.Since.Unix()))
	return "-first-" + hex.EncodeToString(sum[:3])
}

// ReportArchive is where the archive stands; nil for none. It begins when the store
// has taken the first of it from a member that runs as declared: whatever
// backup is begun from that second on is continued by it, since its copy begins
// later than it does. While no agent reports, it is as it was. An agent that is older
// reports the last file of the destination before.
func (j ArchiveView) ReportArchive(now time.Time) *v1alpha1.ArchiveStatus {
	at := j.Archive()
	if at == nil {
		return nil
	}
	st := &v1alpha1.ArchiveStatus{URL: at.Store.URL, Endpoint: at.Store.Endpoint, State: v1alpha1.ArchiveWaiting}
	switch was := j.Cluster.CommonStatus().Archive; {
	case was == nil:
	case was.URL == st.URL && was.Endpoint == st.Endpoint:
		st = was.DeepCopy()
	default:
		st.MovedAt = new(metav1.NewTime(now.Truncate(time.Second)))
	}
	said, known := j.findArchiver()
	switch {
	case !known:
		return st
	case isFailing(said):
		st.State = v1alpha1.ArchiveFailing
		return st
	case st.Since == nil && (said.Last == "" || st.MovedAt != nil && !said.LastTime.After(st.MovedAt.Time)):
		st.State = v1alpha1.ArchiveWaiting
		return st
	case st.Since == nil:
		st.Since = new(metav1.NewTime(now.Truncate(time.Second)))
	}
	st.State = v1alpha1.ArchiveArchiving
	if gap := said.Gap; gap != nil && gap.Ended.After(st.Since.Time) {
		st.Since = new(metav1.NewTime(afterGap(gap)))
	}
	return st
}

// ArchiveBegins says whether an archive is about to begin, or to go on after a
// gap, or has begun and that is not recorded yet.
func (j ArchiveView) ArchiveBegins(a *v1alpha1.ArchiveStatus, now time.Time) bool {
	gap := j.openGap()
	switch was := j.Cluster.CommonStatus().Archive; {
	case a == nil:
		return false
	case gap != nil && now.Before(afterGap(gap)):
		return true
	case a.State == v1alpha1.ArchiveWaiting:
		return true
	default:
		return a.Since != nil && (was == nil || !was.Since.Equal(a.Since))
	}
}

// findArchiver is what the primary says of the archive, once it runs as declared.
func (j ArchiveView) findArchiver() (said *agentapi.ArchiveStatus, known bool) {
	if j.Status == nil || !j.Standings[j.Leader].IsDone() {
		return nil, false
	}
	return j.Status.Archive, true
}

// isFailing says whether an archive takes nothing, or no agent there knows of
// one.
func isFailing(a *agentapi.ArchiveStatus) bool {
	return a == nil || a.Late || a.Error != "" || a.Gap != nil && a.Gap.Ended.IsZero()
}
