package controller

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/job"
)

const (
	// firstStoreRetry and lastStoreRetry bound how long a store that could not be
	// used is left alone. Each pause is twice the one before.
	firstStoreRetry = 5 * time.Minute
	lastStoreRetry  = time.Hour
	// storeCheckSeconds is how long a Job may try, with the pull of its image.
	storeCheckSeconds = 10 * 60
)

// storeObservation is a cluster's destination of backups, and what is known of it.
type storeObservation struct {
	cluster v1alpha1.Cluster
	kind    string
	// image that the members run, agentImage what is injected there.
	image, agentImage string
	// keys is the version of the destination's Secret, and missing its name where
	// it is not there. Both are empty where none is named.
	keys, missing string
	// jobs that try stores of the cluster, and their pods.
	jobs []batchv1.Job
	pods []corev1.Pod
	// good is the newest good backup; nil for none.
	good *v1alpha1.Backup
	now  time.Time
}

// storePlan is what to do about a destination in a pass.
type storePlan struct {
	// check is what is recorded from now on.
	check *v1alpha1.StoreCheck
	// remove are Jobs that serve nothing any more, create is the next one.
	remove []*batchv1.Job
	create *batchv1ac.JobApplyConfiguration
	// fault says why the destination cannot be used, for a reason; nil where it
	// can, or that is unknown.
	fault   *condition.Fact
	recheck time.Duration
}

// planStore is pure. A destination is tried once with what it is given, and
// again now and then only while it cannot be used.
func planStore(s storeObservation) storePlan {
	was := s.cluster.CommonStatus().StoreCheck
	backup := s.cluster.Common().Backup
	switch {
	case !backup.IsEnabled() || backup.Destination == nil:
		return storePlan{remove: s.listOtherJobs("")}
	case s.missing != "":
		p := storePlan{check: was.DeepCopy(), remove: s.listOtherJobs("")}
		p.reportFault(v1alpha1.ReasonSecretMissing, backups.DescribeMissingCredentials("spec.backup.destination.credentialsSecretRef", s.missing, backup.Destination.URL)+", or name another")
		return p
	}
	p := storePlan{remove: s.listOtherJobs(s.jobName())}
	if was != nil && placeIn(was.Given) == s.hashDestination() {
		p.check = was.DeepCopy() // else it is of another destination
	}
	s.planCheck(&p)
	if p.check != nil && p.check.Error != "" {
		p.reportFault(p.check.Reason, p.check.Error)
		switch again := p.recheck > 0; {
		case again && p.check.Given == s.hashInput():
			p.fault.Message += "; it is tried again at " + s.now.Add(p.recheck).UTC().Format(time.RFC3339)
		case again:
			p.fault.Message += "; the Secret has changed, and is tried at " + s.now.Add(p.recheck).UTC().Format(time.RFC3339)
		}
	}
	return p
}

// planCheck reads the Job, and makes it when it is due.
func (s storeObservation) planCheck(p *storePlan) {
	j := s.findOwnJob()
	if j != nil && j.DeletionTimestamp != nil {
		return // its end wakes the cluster
	}
	if j != nil && job.HasEnded(j) {
		s.recordOutcome(p, j)
	}
	if s.wasUsedSince(p.check) {
		p.check.Error, p.check.Reason, p.check.Failures = "", "", 0
	}
	due, again := s.findDueTime(p.check)
	switch {
	case j != nil && !job.HasEnded(j):
	case again && due.After(s.now):
		p.recheck = due.Sub(s.now)
	case j != nil && job.HasCondition(j, batchv1.JobFailed):
		p.remove = append(p.remove, j) // its log was kept until now
	case j == nil && again && s.image != "":
		p.create = s.buildJob()
	}
}

// recordOutcome records how a Job ended.
func (s storeObservation) recordOutcome(p *storePlan, j *batchv1.Job) {
	if job.HasCondition(j, batchv1.JobFailed) {
		s.recordFailure(p, j)
		return
	}
	p.check = &v1alpha1.StoreCheck{Given: j.Annotations[v1alpha1.AnnotationGiven], Time: metav1.NewTime(job.EndTime(j).Truncate(time.Second))}
	p.remove = append(p.remove, j)
}

// findDueTime says when a destination is tried again, if ever. Other keys are tried at
// once where those before were refused once; else they wait, since a Secret may
// be written every minute with the same.
func (s storeObservation) findDueTime(c *v1alpha1.StoreCheck) (at time.Time, again bool) {
	switch {
	case c == nil || c.Given != s.hashInput() && c.Failures == 1:
		return s.now, true
	case c.Given != s.hashInput():
		return c.Time.Add(firstStoreRetry), true
	case c.Error != "":
		return c.Time.Add(pauseAfter(c.Failures)), true
	}
	return time.Time{}, false
}

// recordFailure counts a Job once. It stays, for its log, until the next one is due.
// One that could not run says nothing against what was found before.
func (s storeObservation) recordFailure(p *storePlan, j *batchv1.Job) {
	was, ended := p.check, metav1.NewTime(job.EndTime(j).Truncate(time.Second))
	if was != nil && was.Time.Equal(&ended) {
		return
	}
	p.check = &v1alpha1.StoreCheck{Given: j.Annotations[v1alpha1.AnnotationGiven], Time: ended, Failures: 1}
	p.check.Reason, p.check.Error = s.readRefusal(j)
	if was == nil {
		return
	}
	p.check.Failures += was.Failures
	if p.check.Reason == v1alpha1.ReasonStoreUnchecked && was.Reason == v1alpha1.ReasonStoreUnusable && was.Given == p.check.Given {
		p.check.Reason, p.check.Error = was.Reason, was.Error
	}
}

// wasUsedSince says whether a backup was begun after a failure, and is good: then
// nothing is wrong any more.
func (s storeObservation) wasUsedSince(c *v1alpha1.StoreCheck) bool {
	return c != nil && c.Error != "" && s.good != nil && s.good.Status.Location != nil && s.good.Status.Location.ClaimName == "" && backups.StartTime(s.good).After(c.Time.Time)
}

// readRefusal reads why a Job has failed: its program's last message, or else what
// kept the program from running.
func (s storeObservation) readRefusal(j *batchv1.Job) (reason, message string) {
	for _, t := range job.FindTerminations(j, s.pods) {
		if t.ExitCode != 0 && t.Message != "" {
			return v1alpha1.ReasonStoreUnusable, "the store cannot be used: " + strings.TrimPrefix(strings.TrimSpace(t.Message), "holdfast: ")
		}
	}
	return v1alpha1.ReasonStoreUnchecked, "the store could not be tried: " + cmp.Or(job.DescribeFault(s.pods, j), "Job "+j.Name+" has failed")
}

func (p *storePlan) reportFault(reason, message string) {
	p.fault = &condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// reportUntried says why the destination could not be tried, where nothing worse is
// known of it. No reason to hold the cluster up: backups will say so, too.
func (p *storePlan) reportUntried(message string) {
	p.recheck = firstStoreRetry
	if p.fault == nil {
		p.reportFault(v1alpha1.ReasonStoreUnchecked, "the store could not be tried: "+message)
	}
}

// pauseAfter is how long a store is left alone after so many failures in a row.
func pauseAfter(failures int32) time.Duration {
	pause := firstStoreRetry
	for ; failures > 1 && pause < lastStoreRetry; failures-- {
		pause *= 2
	}
	return min(pause, lastStoreRetry)
}

// hashDestination names the destination, and given what is tried: that, with a version of
// its Secret.
func (s storeObservation) hashDestination() string {
	data, err := json.Marshal(s.cluster.Common().Backup.Destination)
	if err != nil {
		panic(fmt.Sprintf("a destination always marshals: %v", err))
	}
	return hashOf(data)
}

func (s storeObservation) hashInput() string {
	return s.hashDestination() + "-" + hashOf([]byte(s.keys))
}

// placeIn is the destination in a hash of inputs.
func placeIn(given string) string {
	place, _, _ := strings.Cut(given, "-")
	return place
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// jobName of the Job: one for each destination of each cluster, of whatever kind.
func (s storeObservation) jobName() string {
	return s.cluster.GetName() + "-check-" + hashOf([]byte(s.kind + "/" + s.hashDestination()))[:8]
}

// findOwnJob finds the Job of what is declared now; nil for none.
func (s storeObservation) findOwnJob() *batchv1.Job {
	for i := range s.jobs {
		if s.jobs[i].Name == s.jobName() && metav1.IsControlledBy(&s.jobs[i], s.cluster) {
			return &s.jobs[i]
		}
	}
	return nil
}

// listOtherJobs lists the Jobs of another name.
func (s storeObservation) listOtherJobs(name string) []*batchv1.Job {
	var others []*batchv1.Job
	for i := range s.jobs {
		j := &s.jobs[i]
		if j.Name != name && metav1.IsControlledBy(j, s.cluster) && j.DeletionTimestamp == nil {
			others = append(others, j)
		}
	}
	return others
}

func (s storeObservation) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelKind: "store-check", v1alpha1.LabelStoreCheck: strings.ToLower(s.kind),
		"app.kubernetes.io/name": "holdfast-store-check", "app.kubernetes.io/instance": s.cluster.GetName(),
		"app.kubernetes.io/component": "backup", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}
}

// buildJob tries the destination as a backup does: as the same account, with the
// same keys, from the same image. It says what it found by its last words, and
// so needs nothing of the API server.
func (s storeObservation) buildJob() *batchv1ac.JobApplyConfiguration {
	at := s.storeLocation()
	task := agentapi.CheckTask{
		Store:  agentapi.BackupStore{URL: at.URL, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle},
		Prefix: at.Prefix,
	}
	pod := job.BuildPod(task, job.BackupUser, at, s.image, agentapi.BinDir+"/holdfast", "job", "check-store").
		WithServiceAccountName(s.cluster.GetName() + v1alpha1.SuffixBackup).WithAutomountServiceAccountToken(false)
	job.AddInstaller(pod, s.agentImage)
	job.AddScheduling(pod, s.cluster.Common())
	spec := job.BuildSpec(s.labels(), pod).WithBackoffLimit(0).WithActiveDeadlineSeconds(storeCheckSeconds)
	return batchv1ac.Job(s.jobName(), s.cluster.GetNamespace()).WithLabels(s.labels()).
		WithAnnotations(map[string]string{v1alpha1.AnnotationGiven: s.hashInput()}).
		WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).
		WithSpec(spec)
}

// storeLocation of the cluster's objects.
func (s storeObservation) storeLocation() *v1alpha1.BackupLocation {
	c := s.cluster
	return backups.LocateInStore(c.Common().Backup.Destination, fmt.Sprintf("%s/%s/%s/", c.GetNamespace(), c.GetName(), c.GetUID()))
}

// mayBeUsed says whether nothing is known against the destination of backups, and
// where there is one, that it was tried.
func (p storePlan) mayBeUsed(c v1alpha1.Cluster) bool {
	switch {
	case c.Common().Backup == nil || c.Common().Backup.Destination == nil:
		return true
	case p.fault != nil:
		return p.fault.Reason == v1alpha1.ReasonStoreUnchecked // the backup says what is wrong
	}
	return p.check != nil
}
