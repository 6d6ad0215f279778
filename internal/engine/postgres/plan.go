package postgres

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// Types of the steps that touch a member.
const (
	stepReplaceMember = "ReplaceMember"
	stepDeleteVolume  = "DeleteVolume"
)

// judgement is one pass's view of the cluster, gathered once.
type judgement struct {
	c         *v1alpha1.PostgresCluster
	o         Observation
	d         desired
	standings map[int]standing
	facts     []condition.Fact
}

// Plan implements engine.Engine.
func (e *Engine) Plan(c *v1alpha1.PostgresCluster, o Observation, now time.Time) engine.Plan {
	return plan(c, o, now)
}

func plan(c *v1alpha1.PostgresCluster, o Observation, now time.Time) engine.Plan {
	d, writable, stalls := desire(c, o)
	j := judgement{c: c, o: o, d: d, standings: map[int]standing{}, facts: stalls}
	for n := range d.count {
		j.standings[n] = stand(c, o, d, n)
	}
	j.judgeMembers()
	j.judgeFirst()
	j.judgeScale()
	j.judgeVolumes()
	j.judgeService()

	p := engine.Plan{Facts: j.facts, Recheck: j.recheck(now)}
	if writable {
		p.Objects, p.Complete = objects(c, d), d.minted.complete()
	}
	p.Step = j.step(now)
	p.Report = j.report()
	if o.blind() {
		p.Facts = nil
	}
	return p
}

// blind says that a pod that is ready has not been asked yet: an operator that
// has just started knows nothing of members that serve all the time. The first
// answer, or its failure, wakes the loop.
func (o Observation) blind() bool {
	for _, pod := range o.Pods {
		m := o.Members[pod.Name]
		if o.Asking && ready(pod) && pod.DeletionTimestamp == nil && m.Status == nil && m.Err == "" {
			return true
		}
	}
	return false
}

// step is the one operation to do now; the order is the priority.
func (j *judgement) step(now time.Time) *engine.Step {
	if j.c.Spec.Suspend {
		return policyStep(j.c, j.o)
	}
	if s := mintStep(j.c, j.o, now); s != nil {
		return s
	}
	if s := j.replaceStep(); s != nil {
		return s
	}
	return j.dropVolumeStep()
}

// replaceStep replaces one outdated pod: first those that are stuck, then
// replicas from the highest ordinal down, the primary last; never while
// another member is away.
func (j *judgement) replaceStep() *engine.Step { //nolint:gocyclo // an ordered switch: first match wins
	away := false
	var next *corev1.Pod
	why := ""
	for n := range j.d.count {
		pod, m := j.o.Pods[n], j.o.member(n)
		reason := j.outdated(n)
		switch {
		case j.o.leaving(n):
			// Its data goes with its pod: nobody is replaced before a person
			// has decided.
			return nil
		case pod == nil || pod.DeletionTimestamp != nil:
			away = true
		case reason != "" && stuck(pod, m):
			return j.replace(pod, reason)
		case m == nil || !m.Serving || reason == "" && !j.standings[n].done() && !waitsForPrimary(m):
			away = true
		case reason != "" && (next == nil || n > 0):
			next, why = pod, reason
		}
	}
	if next == nil || away {
		return nil
	}
	return j.replace(next, why)
}

// leaving says that a member's volume is being deleted, which is held up only
// by its pod.
func (o Observation) leaving(ordinal int) bool {
	v := o.Volumes[ordinal]
	return v != nil && v.DeletionTimestamp != nil
}

// stuck says whether a pod will not serve by waiting, so that replacing it
// interrupts nothing. Recovery and cloning are work, however long they take.
func stuck(pod *corev1.Pod, m *memberapi.Status) bool {
	if m == nil {
		return waitingReason(pod) != "" || !started(pod)
	}
	return m.State == memberapi.StateHeld || m.State == memberapi.StateFailed || m.State == memberapi.StateWaiting
}

func (j *judgement) replace(pod *corev1.Pod, why string) *engine.Step {
	return &engine.Step{Type: stepReplaceMember, Target: pod.Name, UID: pod.UID, Message: why}
}

// outdated says why a pod must be replaced; empty when it need not be.
func (j *judgement) outdated(ordinal int) string {
	pod := j.o.Pods[ordinal]
	if pod == nil || pod.DeletionTimestamp != nil {
		return ""
	}
	if pod.Annotations[v1alpha1.AnnotationRollout] != rolloutHash(j.c, j.d.asked) {
		return "the pod is older than what the spec declares for it"
	}
	if why := j.d.strays(pod); why != "" {
		return why
	}
	if waitingReason(pod) != "" && installerImage(pod) != j.o.Settings.AgentImage {
		return "the pod does not start, and its agent is older than the operator"
	}
	if m := j.o.member(ordinal); m != nil && len(m.PendingRestart) > 0 && m.ConfigError == "" &&
		m.ConfigHash == memberapi.HashConfig(clusterConfig(j.c, j.d)) {
		return "a restart is needed for " + strings.Join(m.PendingRestart, ", ")
	}
	return ""
}

// dropVolumeStep deletes the volume of a member that was scaled away, when the
// spec says so in words.
func (j *judgement) dropVolumeStep() *engine.Step {
	if j.c.Spec.DeletionPolicy != v1alpha1.DeletionDelete || j.primary() == "" {
		return nil // without a primary this may be the last copy
	}
	for _, n := range sortedKeys(j.o.Volumes) {
		v := j.o.Volumes[n]
		if n < j.d.count || j.o.Pods[n] != nil || v.DeletionTimestamp != nil || v.Labels[v1alpha1.LabelMember] != "" ||
			v.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy || v.Annotations[v1alpha1.AnnotationDataAhead] != "" {
			continue
		}
		return &engine.Step{Type: stepDeleteVolume, Target: v.Name, UID: v.UID, ResourceVersion: v.ResourceVersion,
			Message: "its member was scaled away and spec.deletionPolicy is Delete"}
	}
	return nil
}

func (j *judgement) say(conditionType, reason, format string, args ...any) {
	j.facts = append(j.facts, condition.Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// judgeMembers turns what members say into facts.
func (j *judgement) judgeMembers() {
	for n := range j.d.count {
		if j.o.leaving(n) {
			j.say(v1alpha1.ConditionDegraded, v1alpha1.ReasonDataMissing,
				"volume %s is being deleted and goes when pod %s does: dump the data, or keep the pod, before anything restarts it", volumeName(j.c, n), podName(j.c, n))
		}
		pod, m, s := j.o.Pods[n], j.o.member(n), j.standings[n]
		if pod != nil && pod.DeletionTimestamp == nil && j.outdated(n) == "" {
			if fault := imageFault(pod); fault != "" {
				j.say(v1alpha1.ConditionStalled, v1alpha1.ReasonImageUnavailable,
					"pod %s, %s: check spec.version, spec.image and spec.imagePullSecrets%s", pod.Name, fault, j.d.resolved())
			}
		}
		if m != nil {
			j.judgeStatus(n, m)
		}
		if s.broken {
			j.say(v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown, "%s", s.message)
		}
	}
	versions := map[string]bool{}
	for n := range j.d.count {
		if m := j.o.member(n); m != nil && m.Version != "" && j.standings[n].done() {
			versions[m.Version] = true
		}
	}
	if len(versions) > 1 {
		j.say(v1alpha1.ConditionDegraded, v1alpha1.ReasonMixedVersions,
			"members run %s: name a minor version in spec.version", strings.Join(sortedKeys(versions), " and "))
	}
}

// holdReasons are the reasons of Stalled for what makes an agent hold its
// database down.
var holdReasons = map[memberapi.Hold]string{
	memberapi.HoldDataVersion: v1alpha1.ReasonVersionMismatch,
	memberapi.HoldDataMissing: v1alpha1.ReasonDataMissing,
	memberapi.HoldVolumeFull:  v1alpha1.ReasonVolumeFull,
	memberapi.HoldDataBehind:  v1alpha1.ReasonDataBehind,
	memberapi.HoldDataAhead:   v1alpha1.ReasonDataAhead,
}

func (j *judgement) judgeStatus(ordinal int, m *memberapi.Status) {
	if m.State == memberapi.StateHeld && m.Hold != memberapi.HoldVolumeInUse {
		j.say(v1alpha1.ConditionStalled, orDefault(holdReasons[m.Hold], v1alpha1.ReasonInvalidObject),
			"member %s: %s", podName(j.c, ordinal), m.Message)
	}
	if m.ConfigError != "" {
		j.say(v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidParameter,
			"spec.parameters: %s; the settings in force stay until it is mended", m.ConfigError)
	}
}

// judgeScale says what of a change is under way.
func (j *judgement) judgeScale() {
	for n := range j.d.count {
		if s := j.standings[n]; !s.done() {
			j.say(v1alpha1.ConditionReconciling, j.underWay(s), "%s", s.message)
		}
	}
	if have, want := membership(j.o), j.c.Spec.DesiredReplicas(); have > want {
		j.say(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown, "from %d members to %d", have, want)
	}
	for _, n := range sortedKeys(j.o.Pods) {
		if n >= j.d.count {
			j.say(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown, "member %s is leaving", podName(j.c, n))
		}
	}
	if set := j.o.StatefulSet; set != nil && set.Status.ObservedGeneration < set.Generation {
		j.say(v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing, "the StatefulSet is being taken up")
	}
	if !j.o.Minted.complete() {
		j.say(v1alpha1.ConditionReconciling, v1alpha1.ReasonCreating, "making certificates and credentials")
	}
}

// underWay is the reason of a member's standing in the life of the cluster.
func (j *judgement) underWay(s standing) string {
	if s.reason == v1alpha1.ReasonRestarting && j.versionChanges() {
		return v1alpha1.ReasonUpgrading
	}
	if !j.born() {
		return v1alpha1.ReasonCreating
	}
	return s.reason
}

// born says whether there is a database system.
func (j *judgement) born() bool { return j.d.systemIdentifier != "" && j.c.Status.Version != "" }

// versionChanges says whether some pod runs another image than the desired.
func (j *judgement) versionChanges() bool {
	for n := range j.d.count {
		if pod := j.o.Pods[n]; pod != nil {
			if ctr := databaseContainer(pod.Spec); ctr != nil && ctr.Image != j.d.image && ctr.Image != j.d.asked {
				return true
			}
		}
	}
	return false
}

// judgeVolumes says which volumes are not yet what was asked for.
func (j *judgement) judgeVolumes() {
	for _, v := range j.d.volumes {
		live := j.o.Volumes[v.ordinal]
		if !v.member || live == nil || live.Status.Phase != corev1.ClaimBound {
			continue
		}
		if v.waits {
			j.say(v1alpha1.ConditionReconciling, v1alpha1.ReasonResizing, "volume %s grows once its owner is what spec.deletionPolicy says", live.Name)
		}
		if have := live.Status.Capacity[corev1.ResourceStorage]; have.Cmp(v.size) < 0 {
			j.say(v1alpha1.ConditionReconciling, v1alpha1.ReasonResizing, "volume %s grows from %s to %s", live.Name, have.String(), v.size.String())
		}
	}
}

// judgeService says whether clients can write.
func (j *judgement) judgeService() {
	serving := 0
	for n := range j.d.count {
		if m := j.o.member(n); m != nil && m.Serving {
			serving++
		}
	}
	primary := j.primary()
	if primary != "" && j.o.ReadWrite[primary] {
		j.facts = append(j.facts, condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable,
			Message: fmt.Sprintf("%d of %d members serve, %s takes writes", serving, j.d.count, primary)})
		return
	}
	j.facts = append(j.facts, condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPrimaryUnavailable,
		Message: j.unavailable()})
}

func (j *judgement) unavailable() string {
	if s := j.standings[0]; s.message != "" {
		return "no member takes writes: " + s.message
	}
	return "no member takes writes yet"
}

// primary is the member that takes writes; empty when there is none.
func (j *judgement) primary() string {
	for n := range j.d.count {
		if m := j.o.member(n); m != nil && m.Role == v1alpha1.RolePrimary && m.State == memberapi.StateRunning {
			return podName(j.c, n)
		}
	}
	return ""
}

func (j *judgement) report() engine.Report {
	r := engine.Report{
		Image: j.d.image, Version: runningVersion(j.c, j.o), Primary: j.primary(),
		SystemIdentifier: j.d.systemIdentifier, Replicas: int32(len(j.o.Pods)),
		Selector: labels.SelectorFromSet(identity(j.c).Selector()).String(),
		Endpoints: &v1alpha1.EndpointsStatus{
			ReadWrite: hostPort(readWriteHost(j.c), Port), ReadOnly: hostPort(readOnlyHost(j.c), Port),
		},
	}
	if j.d.minted.complete() {
		r.CredentialsSecret = j.c.Name + suffixApp
	}
	for n := range j.d.count {
		r.Members = append(r.Members, report(j.c, j.o, n, j.standings[n]))
		if m := j.o.member(n); m != nil && m.Serving && ready(j.o.Pods[n]) {
			r.ReadyReplicas++
		}
	}
	return r
}

// recheck is when a certificate is due: no watch reports that.
func (j *judgement) recheck(now time.Time) time.Duration {
	due := j.o.Minted.certificates(j.c).leaf.RenewalTime()
	if due.IsZero() || !due.After(now) {
		return 0
	}
	return due.Sub(now)
}
