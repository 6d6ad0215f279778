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
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

const (
	// firstStoreRetry and lastStoreRetry bound how long a store that could not be
	// used is left alone. Each pause is twice the one before.
	firstStoreRetry = 5 * time.Minute
	lastStoreRetry  = time.Hour
	// storeCheckSeconds is how long a Job may try, with the pull of its image.
	storeCheckSeconds = 10 * 60
)

// storeSeen is a cluster's destination of backups, and what is known of it.
type storeSeen struct {
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
	// check is what is on record from now on.
	check *v1alpha1.StoreCheck
	// remove are Jobs that serve nothing any more, create is the next one.
	remove []*batchv1.Job
	create *batchv1ac.JobApplyConfiguration
	// fault says why the destination cannot be used, for a reason; nil where it
	// can, or nobody knows.
	fault   *condition.Fact
	recheck time.Duration
}

// planStore is pure. A destination is tried once with what it is given, and
// again now and then only while it cannot be used.
func planStore(s storeSeen) storePlan {
	was := s.cluster.CommonStatus().StoreCheck
	backup := s.cluster.Common().Backup
	switch {
	case !backup.On() || backup.Destination == nil:
		return storePlan{remove: s.others("")}
	case s.missing != "":
		p := storePlan{check: was.DeepCopy(), remove: s.others("")}
		p.says(v1alpha1.ReasonSecretMissing, fmt.Sprintf("spec.backup.destination.credentialsSecretRef names the Secret %s, and there is none: make it, or name another", s.missing))
		return p
	}
	p := storePlan{remove: s.others(s.name())}
	if was != nil && placeIn(was.Given) == s.place() {
		p.check = was.DeepCopy() // else it is of another destination
	}
	s.look(&p)
	if p.check != nil && p.check.Error != "" {
		p.says(p.check.Reason, p.check.Error)
		switch again := p.recheck > 0; {
		case again && p.check.Given == s.given():
			p.fault.Message += "; it is tried again at " + s.now.Add(p.recheck).UTC().Format(time.RFC3339)
		case again:
			p.fault.Message += "; the Secret has changed, and is tried at " + s.now.Add(p.recheck).UTC().Format(time.RFC3339)
		}
	}
	return p
}

// look at the Job, and make it where it is time.
func (s storeSeen) look(p *storePlan) {
	job := s.own()
	if job != nil && job.DeletionTimestamp != nil {
		return // its end wakes the cluster
	}
	if job != nil && jobEnded(job) {
		s.take(p, job)
	}
	if s.usedSince(p.check) {
		p.check.Error, p.check.Reason, p.check.Failures = "", "", 0
	}
	due, again := s.due(p.check)
	switch {
	case job != nil && !jobEnded(job):
	case again && due.After(s.now):
		p.recheck = due.Sub(s.now)
	case job != nil && jobIs(job, batchv1.JobFailed):
		p.remove = append(p.remove, job) // its log was kept until now
	case job == nil && again && s.image != "":
		p.create = s.job()
	}
}

// take over how a Job ended.
func (s storeSeen) take(p *storePlan, job *batchv1.Job) {
	if jobIs(job, batchv1.JobFailed) {
		s.failed(p, job)
		return
	}
	p.check = &v1alpha1.StoreCheck{Given: job.Annotations[v1alpha1.AnnotationGiven], Time: endOf(job)}
	p.remove = append(p.remove, job)
}

// due says when a destination is tried again, if ever. Other keys are tried at
// once where those before were refused once; else they wait, since a Secret may
// be written every minute with the same.
func (s storeSeen) due(c *v1alpha1.StoreCheck) (at time.Time, again bool) {
	switch {
	case c == nil || c.Given != s.given() && c.Failures == 1:
		return s.now, true
	case c.Given != s.given():
		return c.Time.Add(firstStoreRetry), true
	case c.Error != "":
		return c.Time.Add(pauseAfter(c.Failures)), true
	}
	return time.Time{}, false
}

// failed counts a Job once. It stays, for its log, until the next one is due.
// One that could not run says nothing against what was found before.
func (s storeSeen) failed(p *storePlan, job *batchv1.Job) {
	was, ended := p.check, endOf(job)
	if was != nil && was.Time.Equal(&ended) {
		return
	}
	p.check = &v1alpha1.StoreCheck{Given: job.Annotations[v1alpha1.AnnotationGiven], Time: ended, Failures: 1}
	p.check.Reason, p.check.Error = s.lastWords(job)
	if was == nil {
		return
	}
	p.check.Failures += was.Failures
	if p.check.Reason == v1alpha1.ReasonStoreUntried && was.Reason == v1alpha1.ReasonStoreUnusable && was.Given == p.check.Given {
		p.check.Reason, p.check.Error = was.Reason, was.Error
	}
}

// usedSince says whether a backup was begun after a failure, and is good: then
// nothing is wrong any more.
func (s storeSeen) usedSince(c *v1alpha1.StoreCheck) bool {
	return c != nil && c.Error != "" && s.good != nil && s.good.Status.Location != nil && s.good.Status.Location.ClaimName == "" && began(s.good).After(c.Time.Time)
}

// lastWords of the program of a Job; else what kept it from running.
func (s storeSeen) lastWords(job *batchv1.Job) (reason, words string) {
	for i := range s.pods {
		if !metav1.IsControlledBy(&s.pods[i], job) {
			continue
		}
		for _, c := range s.pods[i].Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil && c.Name == containerJob && t.ExitCode != 0 && t.Message != "" {
				return v1alpha1.ReasonStoreUnusable, "the store cannot be used: " + strings.TrimPrefix(strings.TrimSpace(t.Message), "holdfast: ")
			}
		}
	}
	return v1alpha1.ReasonStoreUntried, "the store could not be tried: " + cmp.Or(podFault(s.pods, job), "Job "+job.Name+" has failed")
}

func (p *storePlan) says(reason, message string) {
	p.fault = &condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// untried says why the destination could not be tried, where nothing worse is
// known of it. No reason to hold the cluster up: backups will say so, too.
func (p *storePlan) untried(message string) {
	p.recheck = firstStoreRetry
	if p.fault == nil {
		p.says(v1alpha1.ReasonStoreUntried, "the store could not be tried: "+message)
	}
}

// unusable puts what is wrong with the destination before what backups say: they
// will fail, whatever became of the last one. That it could not be tried says no
// more than they do, where there are any.
func (r *regimen) unusable(fault *condition.Fact) {
	if fault == nil {
		return
	}
	for i, f := range r.facts {
		switch {
		case f.Type != v1alpha1.ConditionBackedUp:
			continue
		case fault.Reason == v1alpha1.ReasonStoreUntried && f.Reason != v1alpha1.ReasonNoBackup:
			r.facts[i].Message += "; " + fault.Message
		default:
			fault.Message += "; " + f.Message
			r.facts[i] = *fault
		}
		return
	}
	r.facts = append(r.facts, *fault)
}

// pauseAfter so many failures in a row.
func pauseAfter(failures int32) time.Duration {
	pause := firstStoreRetry
	for ; failures > 1 && pause < lastStoreRetry; failures-- {
		pause *= 2
	}
	return min(pause, lastStoreRetry)
}

// endOf a Job, to the second, as a status has it.
func endOf(job *batchv1.Job) metav1.Time {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
		}
	}
	return metav1.Time{}
}

// place names the destination, and given what is tried: that, with a version of
// its Secret.
func (s storeSeen) place() string {
	told, err := json.Marshal(s.cluster.Common().Backup.Destination)
	if err != nil {
		panic(fmt.Sprintf("a destination always marshals: %v", err))
	}
	return hashOf(told)
}

func (s storeSeen) given() string { return s.place() + "-" + hashOf([]byte(s.keys)) }

// placeIn what was given.
func placeIn(given string) string {
	place, _, _ := strings.Cut(given, "-")
	return place
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// name of the Job: one for each destination of each cluster, of whatever kind.
func (s storeSeen) name() string {
	return s.cluster.GetName() + "-check-" + hashOf([]byte(s.kind + "/" + s.place()))[:8]
}

// own is the Job of what is declared now; nil for none.
func (s storeSeen) own() *batchv1.Job {
	for i := range s.jobs {
		if s.jobs[i].Name == s.name() && metav1.IsControlledBy(&s.jobs[i], s.cluster) {
			return &s.jobs[i]
		}
	}
	return nil
}

// others are the Jobs of another name.
func (s storeSeen) others(name string) []*batchv1.Job {
	var others []*batchv1.Job
	for i := range s.jobs {
		job := &s.jobs[i]
		if job.Name != name && metav1.IsControlledBy(job, s.cluster) && job.DeletionTimestamp == nil {
			others = append(others, job)
		}
	}
	return others
}

func (s storeSeen) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelKind: "store-check", v1alpha1.LabelStoreCheck: strings.ToLower(s.kind),
		"app.kubernetes.io/name": "holdfast-store-check", "app.kubernetes.io/instance": s.cluster.GetName(),
		"app.kubernetes.io/component": "backup", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}
}

// job tries the destination as a backup does: as the same account, with the
// same keys, from the same image. It says what it found by its last words, and
// so needs nothing of the API server.
func (s storeSeen) job() *batchv1ac.JobApplyConfiguration {
	at := s.location()
	task := memberapi.CheckTask{
		Store:  memberapi.BackupStore{URL: at.URL, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle},
		Prefix: at.Prefix,
	}
	pod := jobPod(task, backupUser, at, s.image, memberapi.BinDir+"/holdfast", "job", "check-store").
		WithServiceAccountName(s.cluster.GetName() + v1alpha1.SuffixBackup).WithAutomountServiceAccountToken(false)
	inject(pod, s.agentImage)
	settle(pod, s.cluster.Common())
	spec := jobSpec(s.labels(), pod).WithBackoffLimit(0).WithActiveDeadlineSeconds(storeCheckSeconds)
	return batchv1ac.Job(s.name(), s.cluster.GetNamespace()).WithLabels(s.labels()).
		WithAnnotations(map[string]string{v1alpha1.AnnotationGiven: s.given()}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(s.kind).
			WithName(s.cluster.GetName()).WithUID(s.cluster.GetUID()).WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(spec)
}

// location of the cluster's objects.
func (s storeSeen) location() *v1alpha1.BackupLocation {
	c := s.cluster
	return inStore(c.Common().Backup.Destination, fmt.Sprintf("%s/%s/%s/", c.GetNamespace(), c.GetName(), c.GetUID()))
}
