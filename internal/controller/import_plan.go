package controller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// importRetry is how long after a failed Job, whose cause may pass, the next one begins.
const importRetry = 2 * time.Minute

// stopDeadline is how long a Job that is removed may take to be gone: its pods have half of
// it to stop.
const stopDeadline = 2 * job.PodDeadline

// importObservation is what stands around the import that a cluster begins with.
type importObservation struct {
	cluster v1alpha1.Cluster
	kind    string
	// how the engine would have it; nil where nothing is to be imported.
	how *engine.Import
	// secrets are the versions of the Secrets that the source names and of the one to log in
	// to the new database with, and missing the field and the name of one that is not there.
	secrets, missing string
	// job and what its pods say; nil where there is none. Pods are those of an earlier Job,
	// too: one that was removed by another client may have left them.
	job    *batchv1.Job
	pods   []corev1.Pod
	report *importReport
	// begun says that the account of the Job is there: an import was recorded, and is not done.
	begun      bool
	agentImage string
	now        time.Time
}

// importPlan is what to do about an import in a pass.
type importPlan struct {
	// status is what is recorded of it; mustRecord says that it must be written
	// before anything else is done, and over nothing newer.
	status     *v1alpha1.ImportStatus
	mustRecord bool
	// holds says that nothing is made of the cluster yet.
	holds bool
	// objects are applied with those of the cluster, and pruned with them.
	objects []runtime.ApplyConfiguration
	create  runtime.ApplyConfiguration
	// remove are objects that are in the way of another try, or of no more use.
	remove  []client.Object
	facts   []condition.Fact
	recheck time.Duration
}

// planImport is pure; first match wins. Nothing is decided from how far a pod was: all
// that it writes to the database is one transaction, which ends with the record of
// the import.
func planImport(s importObservation) importPlan {
	st := s.cluster.CommonStatus().Import
	p := importPlan{status: st.DeepCopy()}
	switch {
	case st.Done():
		s.removeTry(&p)
	case s.how == nil:
	case st == nil && (s.how.Opened || s.how.Living && s.job == nil && s.report == nil && !s.begun):
		s.removeTry(&p) // of before an earlier build of the operator, which knows no imports, let clients in
		p.reportStalled(v1alpha1.ReasonImportRefused, "spec.bootstrap.import is of a cluster that has data already, and changes nothing: remove it, or declare another cluster")
	case s.cluster.Common().Suspend:
		p.reportWaiting("the import does not go on while spec.suspend is true")
	case st == nil && !s.how.Living && s.how.Leaving != "":
		p.holds, p.recheck = true, job.RecheckInterval
		p.reportWaiting("volume %s of an earlier cluster of this name is being deleted: the import begins when it is gone; where it stays, look which pod uses it, and which finalizers it has", s.how.Leaving)
	case st == nil: // or that record is lost, and a try is there
		began := metav1.NewTime(s.now.Truncate(time.Second))
		p.status, p.mustRecord = &v1alpha1.ImportStatus{StartTime: &began}, true
		p.reportWaiting("the import is recorded; the first member is made next")
	case s.how.Source == nil:
		s.cancelImport(&p)
	default:
		s.continueImport(&p)
	}
	return p
}

// cancelImport ends an import that the spec declares no more. Clients are let in once no pod
// of it can write.
func (s importObservation) cancelImport(p *importPlan) {
	if s.job != nil || s.report != nil || s.findRunningPod() != "" {
		s.removeTry(p)
		s.reportStopping(p, "spec.bootstrap.import was removed: the import is canceled")
		return
	}
	p.status, p.mustRecord = nil, true
}

// continueImport goes on with an import that is recorded in status.
func (s importObservation) continueImport(p *importPlan) {
	p.objects = importAccess(s)
	switch {
	case s.report != nil && s.report.result != nil:
		s.recordDone(p)
	case s.job != nil && s.job.DeletionTimestamp != nil:
		s.reportStopping(p, "another try begins once the last one has stopped")
	case s.job == nil && s.findRunningPod() != "":
		s.reportStopping(p, "pod %s of an earlier try has not ended: another try begins once it has", s.findRunningPod())
	case s.describeOutdatedTry() != "":
		s.discardTry(p, "%s: another try begins", s.describeOutdatedTry())
	case s.job == nil && !s.how.Serving:
		p.reportWaiting("the import begins once the first member takes writes")
	case s.job == nil && s.missing != "":
		words := fmt.Sprintf("spec.bootstrap.import.%s, and there is no such Secret in this namespace: create it, or name another", s.missing)
		p.setProgress("", "", words) // the API takes another source once one has failed
		p.reportStalled(v1alpha1.ReasonSecretMissing, "%s", words)
		p.recheck = job.RecheckInterval
	case s.report == nil:
		p.create = importReportMap(s)
		p.reportWaiting("the import is about to begin")
	case s.job == nil:
		p.create = importJob(s)
		p.setProgress("", "", "")
		p.reportWaiting("the import is starting")
	default:
		s.followJob(p)
	}
}

// describeOutdatedTry says why what there is of a try is not the next one's; empty where it is.
func (s importObservation) describeOutdatedTry() string {
	switch {
	case s.job != nil && !job.HasEnded(s.job) && !strings.HasPrefix(s.job.Annotations[v1alpha1.AnnotationGiven], s.hashSource()+"-"):
		return "spec.bootstrap.import names another source"
	case s.job == nil && s.report != nil && s.report.pod != "":
		return "what the last try reported is removed"
	}
	return ""
}

// followJob says how far the Job is.
func (s importObservation) followJob(p *importPlan) {
	fault := job.DescribeFault(s.pods, s.job)
	p.recheck = job.RecheckInterval
	switch {
	case job.HasCondition(s.job, batchv1.JobFailed):
		s.reportFailure(p, fault)
	case job.HasCondition(s.job, batchv1.JobComplete) && s.now.Sub(job.EndTime(s.job)) > job.PodDeadline:
		s.discardTry(p, "the import has ended without a result, and is looked at again")
	case job.HasCondition(s.job, batchv1.JobComplete):
		p.reportWaiting("the import has ended")
	case s.describeStuckTry() != "":
		p.reportStalled(v1alpha1.ReasonImporting, "%s", s.describeStuckTry())
	case fault != "":
		p.reportStalled(v1alpha1.ReasonImporting, "%s", fault)
	case len(s.pods) == 0 && s.now.Sub(s.job.CreationTimestamp.Time) > job.PodDeadline:
		p.reportStalled(v1alpha1.ReasonImporting, "Job %s gets no pod: its events say why, such as a quota or an admission policy", s.job.Name)
	case s.report.err != "":
		p.setProgress("", "", s.report.err)
		p.reportWaiting("trying again: %s", s.report.err)
	default:
		p.setProgress(s.report.step, s.report.progress, "")
		p.reportWaiting("%s", describeImportStep(s.report.step, s.report.progress))
	}
}

// findRunningPod names a pod that may still write into the database, whatever became of its
// Job; empty for none.
func (s importObservation) findRunningPod() string {
	for i := range s.pods {
		if phase := s.pods[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return s.pods[i].Name
		}
	}
	return ""
}

// describeStuckTry names what was to stop and has not, as a pod on a node that is cut off: no
// other one is made before it is known to have; empty for none.
func (s importObservation) describeStuckTry() string {
	for _, pod := range s.pods {
		if pod.DeletionTimestamp != nil && s.now.Sub(pod.DeletionTimestamp.Time) > job.PodDeadline {
			return fmt.Sprintf("pod %s on node %s does not stop: bring the node back, or, if it is off, delete the pod with --force", pod.Name, pod.Spec.NodeName)
		}
	}
	if s.job != nil && s.job.DeletionTimestamp != nil && s.now.Sub(s.job.DeletionTimestamp.Time) > stopDeadline {
		return fmt.Sprintf("Job %s was to go, and does not: see its finalizers and its pods with kubectl describe", s.job.Name)
	}
	return ""
}

// describeImportStep says in words what a step does.
func describeImportStep(step, progress string) string {
	says := map[string]string{
		"":                            "the import is starting",
		v1alpha1.ImportStepConnecting: "the source is being connected to",
		v1alpha1.ImportStepChecking:   "the source and the new database are being checked",
		v1alpha1.ImportStepCopying:    "the source is being copied",
		v1alpha1.ImportStepVerifying:  "indexes and constraints are being made, and the copy is verified",
		v1alpha1.ImportStepConfirming: "the copy is complete, and members receive it",
	}
	text := cmp.Or(says[step], step)
	if progress != "" {
		text += ": " + progress
	}
	return text
}

// reportFailure says why, in the pod's own words. What may pass is tried again after
// some time, and so is a Job that said nothing: it may even have completed the import. For
// the rest the Job stays for its log until what it was given changes: the spec, a Secret,
// or a person asks for a pass.
func (s importObservation) reportFailure(p *importPlan, fault string) {
	words := cmp.Or(s.report.err, fault, "the Job has failed: see its pods' logs")
	passing := !s.report.permanent
	if pod := job.FindPodOutOfMemory(s.job, s.pods); pod != "" {
		words, passing = fmt.Sprintf("pod %s needed more memory than it may have (OOMKilled)", pod), true
	}
	wait := importRetry - s.now.Sub(job.EndTime(s.job))
	switch {
	case s.job.Annotations[v1alpha1.AnnotationGiven] != s.hashInput(), passing && wait <= 0:
		s.discardTry(p, "another try begins")
	case passing:
		p.setProgress("", "", words)
		p.reportWaiting("trying again in minutes: %s", words)
		p.recheck = min(wait, job.RecheckInterval)
	default:
		p.setProgress("", "", words)
		p.reportStalled(v1alpha1.ReasonImportFailed, "the import has failed, and has left nothing half done: %s. Once the cause is gone, ask for another try with the annotation %s", words, fluxmeta.ReconcileRequestAnnotation)
	}
}

// discardTry removes what is left of a try, and what it said.
func (s importObservation) discardTry(p *importPlan, format string, args ...any) {
	s.removeTry(p)
	p.reportWaiting(format, args...)
	p.recheck = job.RecheckInterval
}

func (s importObservation) removeTry(p *importPlan) {
	if s.job != nil && s.job.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.job)
	}
	// The report goes last: without it, a try that still runs would not be known.
	if s.job == nil && s.report != nil && s.report.object.DeletionTimestamp == nil {
		p.remove = append(p.remove, s.report.object)
	}
}

// recordDone records that the data is in its place, and verified: clients are let in.
func (s importObservation) recordDone(p *importPlan) {
	done := metav1.NewTime(s.now.Truncate(time.Second))
	p.setProgress("", "", "")
	p.status.CompletionTime, p.status.Result = &done, s.report.result.DeepCopy()
	p.mustRecord = true
	p.reportWaiting("the import is complete: clients are let in")
}

func (p *importPlan) setProgress(step, progress, err string) {
	p.status.Step, p.status.Progress, p.status.Error = step, progress, err
}

// reportWaiting says what clients wait for.
func (p *importPlan) reportWaiting(format string, args ...any) {
	p.facts = append(p.facts, condition.Fact{
		Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonImporting, Message: fmt.Sprintf(format, args...),
	})
}

// reportStopping says what clients wait for, or what keeps it from ending.
func (s importObservation) reportStopping(p *importPlan, format string, args ...any) {
	p.recheck = job.RecheckInterval
	if stuck := s.describeStuckTry(); stuck != "" {
		p.reportStalled(v1alpha1.ReasonImporting, "%s", stuck)
		return
	}
	p.reportWaiting(format, args...)
}

// reportStalled says what only a person can fix.
func (p *importPlan) reportStalled(reason, format string, args ...any) {
	p.facts = append(p.facts, condition.Stalled(reason, fmt.Sprintf(format, args...)))
}
