package controller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// restoreObservation is what stands around the restore that a cluster begins with.
type restoreObservation struct {
	cluster v1alpha1.Cluster
	kind    string
	how     engine.RestorePlan
	// backup that spec.restore names; nil where there is none. volume says
	// whether the volume exists that it lies on.
	backup *v1alpha1.Backup
	volume bool
	// hidden says that the volume is there, and ours, without the labels by which
	// it is seen.
	hidden bool
	// keys is the version of the Secret with the store's keys, and missing its
	// name where it is not there.
	keys, missing string
	// job, its pods, and what these say; nil where there is none.
	job        *batchv1.Job
	pods       []corev1.Pod
	report     *restoreReport
	agentImage string
	now        time.Time
}

// restorePlan is what to do about a restore in a pass.
type restorePlan struct {
	// holds says that the cluster's members wait for it: the engine does nothing.
	holds bool
	// status is what is recorded of it; mustRecord says that it must be written
	// before anything else is done, and over nothing newer.
	status     *v1alpha1.RestoreStatus
	mustRecord bool
	// objects are applied. Of create, each is made only where nothing has its
	// name: what is there is not ours to change.
	objects []runtime.ApplyConfiguration
	// claims are those by whose state objects were made.
	claims map[string]types.UID
	create runtime.ApplyConfiguration
	// remove are objects that are in the way of another try, or of no more use.
	remove  []client.Object
	facts   []condition.Fact
	recheck time.Duration
}

// planRestore is pure; first match wins. Whatever a pod wrote before it died,
// the next one makes of the volume what it should: here nothing is decided from
// how far it was.
func planRestore(s restoreObservation) restorePlan {
	st := s.cluster.CommonStatus().Restore
	p := restorePlan{status: st.DeepCopy()}
	switch {
	case st.Done():
		s.removeFinishedJob(&p)
	case st == nil && s.cluster.Common().Restore == nil:
	case s.how.Living && s.ownsVolume():
		s.recordDone(&p, nil) // that record is lost: there are members on it
	case st == nil && s.how.Living:
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "spec.restore is of a cluster that has data already, and changes nothing: remove it, or declare another cluster")
		p.holds = false
	case s.cluster.Common().Suspend:
		p.reportWaiting("the restore does not go on while spec.suspend is true")
	case s.isVolumeTaken(&p):
	case st == nil:
		s.recordSource(&p)
	case !s.matchesSpec():
		s.beginAnother(&p)
	default:
		s.continueRestore(&p)
	}
	return p
}

// ownsVolume says whether the first member's volume is the one that this restore made.
func (s restoreObservation) ownsVolume() bool {
	return s.how.Volume != nil && s.how.Volume.Annotations[v1alpha1.AnnotationRestoredBy] == string(s.cluster.GetUID())
}

// matchesSpec says whether what is recorded is what spec.restore says, if it
// still says anything.
func (s restoreObservation) matchesSpec() bool {
	st, from := s.cluster.CommonStatus().Restore, s.cluster.Common().Restore
	switch {
	case from == nil || st.Location == nil:
		return true
	case !from.Target.Equal(st.Target):
		return false
	case from.Source == nil:
		return from.Backup == st.Backup
	}
	at := s.inStore(*from.Source)
	same := at.Prefix == st.Location.Prefix && at.URL == st.Location.URL && (from.Source.Backup == "" || from.Source.Backup == st.Backup)
	// How the store is reached matters while something is read there.
	return same && (st.Done() || at.Endpoint == st.Location.Endpoint && at.Region == st.Location.Region &&
		at.PathStyle == st.Location.PathStyle && at.CredentialsSecret == st.Location.CredentialsSecret)
}

// removeFinishedJob removes the Job, which serves nothing any more. The rest is no longer
// declared, and pruned.
func (s restoreObservation) removeFinishedJob(p *restorePlan) {
	if s.job != nil && s.job.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.job)
	}
	if !s.matchesSpec() {
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "spec.restore says another backup or target than the one that the cluster began with, and changes nothing: set it back, remove it, or declare another cluster")
		p.holds = false
	}
}

// beginAnother begins with another backup than the recorded one, of which nothing was
// restored. The volume stays: its pod knows what to make of it.
func (s restoreObservation) beginAnother(p *restorePlan) {
	if s.job == nil && s.report == nil {
		s.recordSource(p)
		return
	}
	s.discardTry(p, "the restore begins with another backup once what is left of the last try is gone")
}

// isVolumeTaken says whether a volume is there that another client made. It is never
// touched.
func (s restoreObservation) isVolumeTaken(p *restorePlan) bool {
	v := s.how.Volume
	switch {
	case s.how.Leaving != "":
		p.reportWaiting("volume %s of an earlier cluster of this name is being deleted: the restore begins when it is gone; where it stays, look which pod uses it, and which finalizers it has", s.how.Leaving)
	case v != nil && !s.ownsVolume() && v.Annotations[v1alpha1.AnnotationRestoredBy] != "" && v.Annotations[v1alpha1.AnnotationSystemIdentifier] == "":
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "volume %s holds what an earlier cluster of this name began to restore, and does not say that a member ran on it: look at what it holds first; once you have deleted it, the restore begins", v.Name)
	case v != nil && !s.ownsVolume() && s.cluster.CommonStatus().Restore != nil:
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "volume %s is not the one that the restore has made, and nothing is restored over it: delete it, and the restore begins again; or keep it, and declare another cluster", v.Name)
	case v != nil && !s.ownsVolume():
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "volume %s of an earlier cluster of this name is there, and nothing is restored over it: remove spec.restore to go on with what it holds, delete it, or give the cluster another name", v.Name)
	case len(s.how.Others) > 0:
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "volumes of an earlier cluster of this name are there, and nothing is restored beside them: remove spec.restore to go on with what they hold, delete %s, or give the cluster another name", strings.Join(s.how.Others, " and "))
	default:
		return false
	}
	return true
}

// recordSource records what is read: whatever becomes of the Backup and of the
// spec from now on, every try reads the same.
func (s restoreObservation) recordSource(p *restorePlan) {
	if wait, is := s.isTargetInFuture(); is {
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "spec.restore.target.time %s is in the future: name a time that has passed, or latest: true for all that is archived", s.cluster.Common().Restore.Target.Time)
		p.recheck = wait
		return
	}
	began := metav1.NewTime(s.now.Truncate(time.Second))
	st := &v1alpha1.RestoreStatus{StartTime: &began, Target: s.cluster.Common().Restore.Target.DeepCopy()}
	if from := s.cluster.Common().Restore; from.Source != nil {
		st.Location, st.Backup = s.inStore(*from.Source), from.Source.Backup
	} else if s.isBackupUnusable(p) {
		return
	} else {
		r := s.backup.Status.Result
		st.Location, st.Backup, st.Manifest, st.Checksum = s.backup.Status.Location.DeepCopy(), s.backup.Name, r.Manifest, r.Checksum
	}
	p.status, p.mustRecord = st, true
	p.reportWaiting("the restore is about to begin")
}

func (s restoreObservation) inStore(from v1alpha1.RestoreSource) *v1alpha1.BackupLocation {
	at := &v1alpha1.BackupLocation{
		URL: strings.TrimRight(from.URL, "/"), Endpoint: from.Endpoint, Region: from.Region, PathStyle: from.PathStyle,
		Prefix: cmp.Or(from.Namespace, s.cluster.GetNamespace()) + "/" + cmp.Or(from.Cluster, s.cluster.GetName()) + "/",
	}
	if from.ClusterUID != "" {
		at.Prefix += from.ClusterUID + "/"
	}
	if from.CredentialsSecretRef != nil {
		at.CredentialsSecret = from.CredentialsSecretRef.Name
	}
	return at
}

// isBackupUnusable says why the Backup that spec.restore names cannot be restored, or
// not yet.
func (s restoreObservation) isBackupUnusable(p *restorePlan) bool {
	b, name := s.backup, s.cluster.Common().Restore.Backup
	switch {
	case b == nil:
		p.reportStalled(v1alpha1.ReasonBackupMissing, "spec.restore.backup names %s, and there is no such Backup in this namespace: create it; or name its objects in the store, in spec.restore.source of another cluster", name)
	case b.Spec.ClusterRef.Kind != s.kind:
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "spec.restore.backup: backup %s is of the kind %s, and no %s can begin with it: name a backup of that kind", name, b.Spec.ClusterRef.Kind, s.kind)
	case b.DeletionTimestamp != nil:
		p.reportStalled(v1alpha1.ReasonBackupMissing, "spec.restore.backup: backup %s is being deleted: name another backup", name)
	case b.IsFinished() && !b.HasSucceeded():
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "spec.restore.backup: backup %s has failed: %s; name another backup", name, b.Status.Error)
	case !b.HasSucceeded():
		p.reportWaiting("backup %s is not complete yet", name)
	case !s.volume && b.Status.Location.ClaimName != "":
		p.reportStalled(v1alpha1.ReasonBackupMissing, "spec.restore.backup: volume %s, which backup %s lies on, is gone: name another backup", b.Status.Location.ClaimName, name)
	case s.cluster.Common().Restore.Target != nil && b.Status.Location.ClaimName != "":
		p.reportStalled(v1alpha1.ReasonRestoreRefused, "spec.restore.target asks for a point in time in the WAL, and backup %s lies on volume %s, where no WAL is archived: remove the target to restore the backup as it is, or name one in an object store", name, b.Status.Location.ClaimName)
	default:
		return false
	}
	p.recheck = job.RecheckInterval
	return true
}

// missingSecret says which Secret the restore waits for, and by which field it is
// named: the spec's, or that of the cluster that was backed up.
func (s restoreObservation) missingSecret() string {
	st := s.cluster.CommonStatus().Restore
	if from := s.cluster.Common().Restore; from != nil && from.Source != nil {
		return backups.DescribeMissingCredentials("spec.restore.source.credentialsSecretRef", s.missing, st.Location.URL) + ", or name another"
	}
	return backups.DescribeMissingCredentials("spec.restore.backup: backup "+st.Backup+" was written to "+st.Location.URL, s.missing, st.Location.URL)
}

// isTargetInFuture says whether the target of a restore has not come yet: no log leads
// there, and the restore begins once it has.
func (s restoreObservation) isTargetInFuture() (wait time.Duration, is bool) {
	target := s.cluster.Common().Restore.Target
	if target == nil || target.Time == "" {
		return 0, false
	}
	at, err := time.Parse(time.RFC3339, target.Time)
	return at.Sub(s.now), err == nil && at.After(s.now)
}

// continueRestore goes on with a restore that is recorded in status.
func (s restoreObservation) continueRestore(p *restorePlan) {
	p.objects = restoreAccess(s)
	switch v := s.how.Volume; {
	case len(s.how.Faults) > 0 && v == nil:
		p.holds, p.facts, p.objects = true, s.how.Faults, nil
	case v == nil && !s.hidden && (s.job != nil || s.report != nil):
		s.discardTry(p, "the volume is gone: the restore begins again") // and what was said of it
	case v == nil:
		p.create = withoutOwner(s.how.Claim)
		p.reportWaiting("volume %s is being made", *s.how.Claim.Name)
	case v.DeletionTimestamp != nil:
		p.reportStalled(v1alpha1.ReasonRestoreFailed, "volume %s is being deleted: once it is gone, the restore begins again", v.Name)
		p.recheck = job.RecheckInterval
	case s.report == nil:
		p.create = restoreReportMap(s)
		p.reportWaiting("the restore is about to begin")
	case s.report.result != nil && !s.isResultOfRecord(s.report.result):
		s.refuseOtherResult(p, s.report.result)
	case s.report.result != nil:
		s.recordDone(p, s.report.result)
		p.reportWaiting("the backup is restored: the first member is about to start")
		return
	default:
		s.followJob(p)
	}
	if s.how.Volume != nil && s.how.Volume.DeletionTimestamp == nil {
		p.objects = append(p.objects, s.how.Claim) // it follows spec.deletionPolicy
		p.claims = map[string]types.UID{s.how.Volume.Name: s.how.Volume.UID}
	}
}

// isResultOfRecord says whether a result is of what is recorded. A try for an earlier
// spec.restore may have ended between two passes.
func (s restoreObservation) isResultOfRecord(r *v1alpha1.RestoreResult) bool {
	st := s.cluster.CommonStatus().Restore
	switch {
	case !r.Target.Equal(st.Target):
		return false
	case st.Manifest != "":
		return r.Manifest == st.Manifest
	case st.Backup != "" && r.Backup != st.Backup:
		return false
	}
	return strings.HasPrefix(r.Manifest, st.Location.Prefix)
}

// refuseOtherResult keeps members off a volume that holds another backup than the one on
// record.
func (s restoreObservation) refuseOtherResult(p *restorePlan, r *v1alpha1.RestoreResult) {
	if s.job != nil && s.job.Annotations[v1alpha1.AnnotationGiven] != s.hashInput() {
		s.discardTry(p, "another try begins")
		return
	}
	words := fmt.Sprintf("volume %s holds backup %s, of the manifest %s, recovered to %s, which is not what spec.restore names: check which one you want; then name that one in spec.restore, or delete the volume to restore what spec.restore names",
		s.how.Volume.Name, r.Backup, r.Manifest, r.Target)
	p.setProgress("", words)
	p.reportStalled(v1alpha1.ReasonRestoreFailed, "%s", words)
	p.recheck = job.RecheckInterval
}

// followJob says how far the Job is, and makes it.
func (s restoreObservation) followJob(p *restorePlan) {
	fault := ""
	if s.job != nil {
		fault = job.DescribeFault(s.pods, s.job)
	}
	switch {
	case s.job != nil && s.job.DeletionTimestamp != nil:
		p.reportWaiting("another try begins once the last one has stopped")
	case s.job != nil && job.HasCondition(s.job, batchv1.JobFailed):
		s.reportFailure(p, fault)
	case s.job == nil && s.missing != "":
		p.reportStalled(v1alpha1.ReasonSecretMissing, "%s", s.missingSecret())
		p.recheck = job.RecheckInterval
	case s.job == nil:
		p.create = restoreJob(s)
		p.setProgress("", "")
		p.reportWaiting("the restore is starting")
	case job.HasCondition(s.job, batchv1.JobComplete):
		if s.timeSinceEnd() > job.PodDeadline { // its report is not on its way any more
			s.discardTry(p, "the restore has ended without a result, and is looked at again")
			return
		}
		p.reportWaiting("the restore has ended")
		p.recheck = job.RecheckInterval
	case fault != "":
		p.reportStalled(v1alpha1.ReasonRestoring, "%s", fault)
		p.recheck = job.RecheckInterval
	case len(s.pods) == 0 && s.now.Sub(s.job.CreationTimestamp.Time) > job.PodDeadline:
		p.reportStalled(v1alpha1.ReasonRestoring, "Job %s gets no pod: its events say why, such as a quota or an admission policy", s.job.Name)
		p.recheck = job.RecheckInterval
	default:
		s.reportProgress(p)
	}
}

// reportProgress says what the pod says.
func (s restoreObservation) reportProgress(p *restorePlan) {
	r := s.report
	p.recheck = job.RecheckInterval
	switch {
	case r.err != "":
		p.setProgress("", r.err)
		p.reportWaiting("trying again: %s", r.err)
	case r.step == "":
		p.reportWaiting("the restore is starting")
	default:
		p.setProgress(strings.TrimSpace(r.step+" "+r.progress), "")
		p.reportWaiting("%s", describeRestoreStep(r.step, r.progress))
	}
}

// describeRestoreStep says in words what a step does.
func describeRestoreStep(step, progress string) string {
	says := map[string]string{
		v1alpha1.RestoreStepFinding: "the backup is being looked for", v1alpha1.RestoreStepCopying: "the backup is being copied and checked",
		v1alpha1.RestoreStepRecovering: "the database recovers",
	}
	text := cmp.Or(says[step], step)
	if progress != "" {
		text += ", " + progress
	}
	return text
}

// reportFailure says why, in the pod's own words. The Job stays for its log until what
// it was given changes: the spec, the keys, or a person asks for a pass.
func (s restoreObservation) reportFailure(p *restorePlan, fault string) {
	if s.job.Annotations[v1alpha1.AnnotationGiven] != s.hashInput() {
		s.discardTry(p, "another try begins")
		return
	}
	words := cmp.Or(s.report.err, fault, "the Job has failed: see its pods' logs")
	if pod := job.FindPodOutOfMemory(s.job, s.pods); pod != "" {
		words = fmt.Sprintf("spec.resources: pod %s needed more memory than it may have (OOMKilled): raise the limit", pod)
	}
	p.setProgress("", words)
	p.reportStalled(v1alpha1.ReasonRestoreFailed, "nothing was restored: %s", words)
	p.recheck = job.RecheckInterval
}

// discardTry removes what is left of a try, and what it said.
func (s restoreObservation) discardTry(p *restorePlan, format string, args ...any) {
	if s.job != nil && s.job.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.job)
	}
	if s.report != nil && s.report.object.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.report.object)
	}
	p.reportWaiting(format, args...)
	p.recheck = job.RecheckInterval // what goes is watched
}

// timeSinceEnd is how long ago the Job ended.
func (s restoreObservation) timeSinceEnd() time.Duration {
	if at := s.job.Status.CompletionTime; at != nil {
		return s.now.Sub(at.Time)
	}
	return 0
}

// recordDone records that the data is in its place. From now on nothing
// is restored any more, whatever becomes of the volume.
func (s restoreObservation) recordDone(p *restorePlan, result *v1alpha1.RestoreResult) {
	done := metav1.NewTime(s.now.Truncate(time.Second))
	if p.status == nil {
		p.status = &v1alpha1.RestoreStatus{}
	}
	p.status.CompletionTime, p.status.Progress, p.status.Error, p.status.Result = &done, "", "", result.DeepCopy()
	if result != nil {
		p.status.Backup, p.status.Manifest, p.status.Checksum = result.Backup, result.Manifest, result.Checksum
	}
	p.mustRecord, p.objects = true, nil
}

func (p *restorePlan) setProgress(progress, err string) {
	p.status.Progress, p.status.Error = progress, err
}

// reportWaiting says what the members wait for.
func (p *restorePlan) reportWaiting(format string, args ...any) {
	p.holds = true
	p.facts = append(p.facts, condition.Fact{
		Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRestoring, Message: fmt.Sprintf(format, args...),
	})
}

// reportStalled says what only a person can fix.
func (p *restorePlan) reportStalled(reason, format string, args ...any) {
	p.holds = true
	p.facts = append(p.facts, condition.Stalled(reason, fmt.Sprintf(format, args...)))
}
