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
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// restoreSeen is what stands around the restore that a cluster begins with.
type restoreSeen struct {
	cluster v1alpha1.Cluster
	kind    string
	how     engine.Restoring
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
	// status is what is on record of it; latch says that it must be written
	// before anything else is done, and over nothing newer.
	status *v1alpha1.RestoreStatus
	latch  bool
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
func planRestore(s restoreSeen) restorePlan {
	st := s.cluster.CommonStatus().Restore
	p := restorePlan{status: st.DeepCopy()}
	switch {
	case st.Done():
		s.over(&p)
	case st == nil && s.cluster.Common().Restore == nil:
	case s.how.Living && s.ours():
		s.latchDone(&p, nil) // that record is lost: there are members on it
	case st == nil && s.how.Living:
		p.stalls(v1alpha1.ReasonRestoreRefused, "spec.restore is of a cluster that has data already, and changes nothing: remove it, or declare another cluster")
		p.holds = false
	case s.cluster.Common().Suspend:
		p.waits("the restore does not go on while spec.suspend is true")
	case s.taken(&p):
	case st == nil:
		s.begin(&p)
	case !s.asDeclared():
		s.anew(&p)
	default:
		s.goOn(&p)
	}
	return p
}

// ours says whether the first member's volume is the one that this restore made.
func (s restoreSeen) ours() bool {
	return s.how.Volume != nil && s.how.Volume.Annotations[v1alpha1.AnnotationRestoredBy] == string(s.cluster.GetUID())
}

// asDeclared says whether what is on record is what spec.restore says, if it
// still says anything.
func (s restoreSeen) asDeclared() bool {
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

// over removes the Job, which serves nothing any more. The rest is no longer
// declared, and pruned.
func (s restoreSeen) over(p *restorePlan) {
	if s.job != nil && s.job.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.job)
	}
	if !s.asDeclared() {
		p.stalls(v1alpha1.ReasonRestoreRefused, "spec.restore says another backup or target than the one that the cluster began with, and changes nothing: set it back, remove it, or declare another cluster")
		p.holds = false
	}
}

// anew begins with another backup than the one on record, of which nothing was
// restored. The volume stays: its pod knows what to make of it.
func (s restoreSeen) anew(p *restorePlan) {
	if s.job == nil && s.report == nil {
		s.begin(p)
		return
	}
	s.again(p, "the restore begins with another backup once what is left of the last try is gone")
}

// taken says whether a volume is there that somebody else made. It is never
// touched.
func (s restoreSeen) taken(p *restorePlan) bool {
	v := s.how.Volume
	switch {
	case s.how.Leaving != "":
		p.waits("volume %s of an earlier cluster of this name is being deleted: the restore begins when it is gone; where it stays, look which pod uses it, and which finalizers it has", s.how.Leaving)
	case v != nil && !s.ours() && v.Annotations[v1alpha1.AnnotationRestoredBy] != "" && v.Annotations[v1alpha1.AnnotationSystemIdentifier] == "":
		p.stalls(v1alpha1.ReasonRestoreRefused, "volume %s holds what an earlier cluster of this name began to restore, and does not say that a member ran on it: look at what it holds first; once you have deleted it, the restore begins", v.Name)
	case v != nil && !s.ours() && s.cluster.CommonStatus().Restore != nil:
		p.stalls(v1alpha1.ReasonRestoreRefused, "volume %s is not the one that the restore has made, and nothing is restored over it: delete it, and the restore begins again; or keep it, and declare another cluster", v.Name)
	case v != nil && !s.ours():
		p.stalls(v1alpha1.ReasonRestoreRefused, "volume %s of an earlier cluster of this name is there, and nothing is restored over it: remove spec.restore to go on with what it holds, delete it, or give the cluster another name", v.Name)
	case len(s.how.Others) > 0:
		p.stalls(v1alpha1.ReasonRestoreRefused, "volumes of an earlier cluster of this name are there, and nothing is restored beside them: remove spec.restore to go on with what they hold, delete %s, or give the cluster another name", strings.Join(s.how.Others, " and "))
	default:
		return false
	}
	return true
}

// begin puts on record what is read: whatever becomes of the Backup and of the
// spec from now on, every try reads the same.
func (s restoreSeen) begin(p *restorePlan) {
	began := metav1.NewTime(s.now.Truncate(time.Second))
	st := &v1alpha1.RestoreStatus{StartTime: &began, Target: s.cluster.Common().Restore.Target.DeepCopy()}
	if from := s.cluster.Common().Restore; from.Source != nil {
		st.Location, st.Backup = s.inStore(*from.Source), from.Source.Backup
	} else if s.unusable(p) {
		return
	} else {
		r := s.backup.Status.Result
		st.Location, st.Backup, st.Manifest, st.Checksum = s.backup.Status.Location.DeepCopy(), s.backup.Name, r.Manifest, r.Checksum
	}
	p.status, p.latch = st, true
	p.waits("the restore is about to begin")
}

func (s restoreSeen) inStore(from v1alpha1.RestoreSource) *v1alpha1.BackupLocation {
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

// unusable says why the Backup that spec.restore names cannot be restored, or
// not yet.
func (s restoreSeen) unusable(p *restorePlan) bool {
	b, name := s.backup, s.cluster.Common().Restore.Backup
	switch {
	case b == nil:
		p.stalls(v1alpha1.ReasonBackupMissing, "spec.restore.backup names %s, and there is no such Backup in this namespace: create it; or name its objects in the store, in spec.restore.source of another cluster", name)
	case b.Spec.ClusterRef.Kind != s.kind:
		p.stalls(v1alpha1.ReasonRestoreRefused, "backup %s is of a %s, and no %s can begin with it: declare another cluster", name, b.Spec.ClusterRef.Kind, s.kind)
	case b.DeletionTimestamp != nil:
		p.stalls(v1alpha1.ReasonBackupMissing, "backup %s is being deleted: declare another cluster, with another backup", name)
	case b.Finished() && !b.Succeeded():
		p.stalls(v1alpha1.ReasonRestoreRefused, "backup %s has failed: %s; declare another cluster, with another backup", name, b.Status.Error)
	case !b.Succeeded():
		p.waits("backup %s is not complete yet", name)
	case !s.volume && b.Status.Location.ClaimName != "":
		p.stalls(v1alpha1.ReasonBackupMissing, "volume %s, which backup %s lies on, is gone: declare another cluster, with another backup", b.Status.Location.ClaimName, name)
	case s.cluster.Common().Restore.Target != nil && b.Status.Location.ClaimName != "":
		p.stalls(v1alpha1.ReasonRestoreRefused, "spec.restore.target asks for a moment in the log, and backup %s lies on volume %s, which no log is archived on: remove the target to restore the backup as it is, or name one in an object store", name, b.Status.Location.ClaimName)
	default:
		return false
	}
	p.recheck = backupRecheck
	return true
}

// goOn with a restore that is on record.
func (s restoreSeen) goOn(p *restorePlan) {
	p.objects = restoreAccess(s)
	switch v := s.how.Volume; {
	case len(s.how.Faults) > 0 && v == nil:
		p.holds, p.facts, p.objects = true, s.how.Faults, nil
	case v == nil && !s.hidden && (s.job != nil || s.report != nil):
		s.again(p, "the volume is gone: the restore begins again") // and what was said of it
	case v == nil:
		p.create = withoutOwner(s.how.Claim)
		p.waits("volume %s is being made", *s.how.Claim.Name)
	case v.DeletionTimestamp != nil:
		p.stalls(v1alpha1.ReasonRestoreFailed, "volume %s is being deleted: once it is gone, the restore begins again", v.Name)
		p.recheck = backupRecheck
	case s.report == nil:
		p.create = restoreReportMap(s)
		p.waits("the restore is about to begin")
	case s.report.result != nil && !s.answers(s.report.result):
		s.mistaken(p, s.report.result)
	case s.report.result != nil:
		s.latchDone(p, s.report.result)
		p.waits("the backup is restored: the first member is about to start")
		return
	default:
		s.run(p)
	}
	if s.how.Volume != nil && s.how.Volume.DeletionTimestamp == nil {
		p.objects = append(p.objects, s.how.Claim) // it follows spec.deletionPolicy
		p.claims = map[string]types.UID{s.how.Volume.Name: s.how.Volume.UID}
	}
}

// answers says whether a result is of what is on record. A try for an earlier
// spec.restore may have ended while nobody looked.
func (s restoreSeen) answers(r *v1alpha1.RestoreResult) bool {
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

// mistaken keeps members off a volume that holds another backup than the one on
// record.
func (s restoreSeen) mistaken(p *restorePlan, r *v1alpha1.RestoreResult) {
	if s.job != nil && s.job.Annotations[v1alpha1.AnnotationGiven] != s.given() {
		s.again(p, "another try begins")
		return
	}
	words := fmt.Sprintf("volume %s holds backup %s, of the manifest %s, recovered to %s, which is not what spec.restore names: check which one you want; then name that one in spec.restore, or delete the volume to restore what spec.restore names",
		s.how.Volume.Name, r.Backup, r.Manifest, r.Target)
	p.progress("", words)
	p.stalls(v1alpha1.ReasonRestoreFailed, "%s", words)
	p.recheck = backupRecheck
}

// run says how far the Job is, and makes it.
func (s restoreSeen) run(p *restorePlan) {
	fault := ""
	if s.job != nil {
		fault = podFault(s.pods, s.job)
	}
	switch {
	case s.job != nil && s.job.DeletionTimestamp != nil:
		p.waits("another try begins once the last one has stopped")
	case s.job != nil && jobIs(s.job, batchv1.JobFailed):
		s.failed(p, fault)
	case s.job == nil && s.missing != "":
		p.stalls(v1alpha1.ReasonSecretMissing, "Secret %s, with the keys of the store to restore from, is not there: make it", s.missing)
		p.recheck = backupRecheck
	case s.job == nil:
		p.create = restoreJob(s)
		p.progress("", "")
		p.waits("the restore is starting")
	case jobIs(s.job, batchv1.JobComplete):
		if s.ended() > noPod { // its report is not on its way any more
			s.again(p, "the restore has ended without a result, and is looked at again")
			return
		}
		p.waits("the restore has ended")
		p.recheck = backupRecheck
	case fault != "":
		p.stalls(v1alpha1.ReasonRestoring, "%s", fault)
		p.recheck = backupRecheck
	case len(s.pods) == 0 && s.now.Sub(s.job.CreationTimestamp.Time) > noPod:
		p.stalls(v1alpha1.ReasonRestoring, "Job %s gets no pod: its events say why, such as a quota or an admission policy", s.job.Name)
		p.recheck = backupRecheck
	default:
		s.underWay(p)
	}
}

// underWay says what the pod says.
func (s restoreSeen) underWay(p *restorePlan) {
	r := s.report
	p.recheck = backupRecheck
	switch {
	case r.err != "":
		p.progress("", r.err)
		p.waits("trying again: %s", r.err)
	case r.step == "":
		p.waits("the restore is starting")
	default:
		p.progress(strings.TrimSpace(r.step+" "+r.progress), "")
		p.waits("%s", restoreSays(r.step, r.progress))
	}
}

// restoreSays is what a step is to people.
func restoreSays(step, progress string) string {
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

// failed says why, in the pod's own words. The Job stays for its log until what
// it was given changes: the spec, the keys, or a person asks for a pass.
func (s restoreSeen) failed(p *restorePlan, fault string) {
	if s.job.Annotations[v1alpha1.AnnotationGiven] != s.given() {
		s.again(p, "another try begins")
		return
	}
	words := cmp.Or(s.report.err, fault, "the Job has failed: see its pods' logs")
	if pod := s.outOfMemory(); pod != "" {
		words = fmt.Sprintf("spec.resources: pod %s needed more memory than it may have (OOMKilled): raise the limit", pod)
	}
	p.progress("", words)
	p.stalls(v1alpha1.ReasonRestoreFailed, "nothing was restored: %s", words)
	p.recheck = backupRecheck
}

// outOfMemory names a pod of the Job that was killed for it; empty for none. It
// had no time to say so.
func (s restoreSeen) outOfMemory() string {
	for i := range s.pods {
		pod := &s.pods[i]
		for _, c := range pod.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil && t.Reason == "OOMKilled" && metav1.IsControlledBy(pod, s.job) {
				return pod.Name
			}
		}
	}
	return ""
}

// again removes what is left of a try, and what it said.
func (s restoreSeen) again(p *restorePlan, format string, args ...any) {
	if s.job != nil && s.job.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.job)
	}
	if s.report != nil && s.report.object.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.report.object)
	}
	p.waits(format, args...)
	p.recheck = backupRecheck // what goes is watched
}

// ended is how long ago the Job was.
func (s restoreSeen) ended() time.Duration {
	if at := s.job.Status.CompletionTime; at != nil {
		return s.now.Sub(at.Time)
	}
	return 0
}

// latchDone puts on record that the data is in its place. From now on nothing
// is restored any more, whatever becomes of the volume.
func (s restoreSeen) latchDone(p *restorePlan, result *v1alpha1.RestoreResult) {
	done := metav1.NewTime(s.now.Truncate(time.Second))
	if p.status == nil {
		p.status = &v1alpha1.RestoreStatus{}
	}
	p.status.CompletionTime, p.status.Progress, p.status.Error, p.status.Result = &done, "", "", result.DeepCopy()
	if result != nil {
		p.status.Backup, p.status.Manifest, p.status.Checksum = result.Backup, result.Manifest, result.Checksum
	}
	p.latch, p.objects = true, nil
}

func (p *restorePlan) progress(progress, err string) {
	p.status.Progress, p.status.Error = progress, err
}

// waits says what the members wait for.
func (p *restorePlan) waits(format string, args ...any) {
	p.holds = true
	p.facts = append(p.facts, condition.Fact{
		Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRestoring, Message: fmt.Sprintf(format, args...),
	})
}

// stalls says what only a person can mend.
func (p *restorePlan) stalls(reason, format string, args ...any) {
	p.holds = true
	p.facts = append(p.facts, stalled(reason, fmt.Sprintf(format, args...)))
}
