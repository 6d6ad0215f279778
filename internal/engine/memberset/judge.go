package memberset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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

// Judgement is one pass's view of the members, gathered once.
type Judgement struct {
	Set
	Seen      Observation
	Desired   Desired
	Standings map[int]Standing
	Facts     []condition.Fact
	// Now is the time of the pass.
	Now time.Time
	// Mending are the members that the engine frees from their hold by itself.
	Mending map[int]bool
}

// Blind says that a pod that is ready has not been asked yet: an operator that
// has just started knows nothing of members that serve all the time. The first
// answer, or its failure, wakes the loop.
func (o Observation) Blind() bool {
	for _, pod := range o.Pods {
		m := o.Members[pod.Name]
		if o.Asking && Ready(pod) && pod.DeletionTimestamp == nil && m.Status == nil && m.Err == "" {
			return true
		}
	}
	return false
}

// Say adds a fact that is true.
func (j *Judgement) Say(conditionType, reason, format string, args ...any) {
	j.Facts = append(j.Facts, condition.Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// Available says whether clients are served.
func (j *Judgement) Available(yes bool, reason, format string, args ...any) {
	j.Say(v1alpha1.ConditionAvailable, reason, format, args...)
	if !yes {
		j.Facts[len(j.Facts)-1].Status = metav1.ConditionFalse
	}
}

// JudgeMembers turns what members say into facts.
func (j *Judgement) JudgeMembers() {
	for n := range j.Desired.Count {
		if j.Seen.leaving(n) && !j.passes(j.Seen, n) {
			j.Say(v1alpha1.ConditionDegraded, v1alpha1.ReasonDataMissing,
				"volume %s is being deleted and goes when pod %s does: dump the data, or keep the pod, before anything restarts it", j.VolumeName(n), j.PodName(n))
		}
		j.judgeUncreated(n)
		m, s := j.Seen.Member(n), j.Standings[n]
		j.judgeImage(n)
		j.judgePause(n)
		if m != nil {
			j.judgeStatus(n, m)
		}
		if s.Broken {
			j.Say(v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown, "%s", s.Message)
		}
	}
	versions := map[string]bool{}
	for n := range j.Desired.Count {
		if m := j.Seen.Member(n); m != nil && m.Version != "" && j.Standings[n].Done() {
			versions[m.Version] = true
		}
	}
	if len(versions) > 1 {
		j.Say(v1alpha1.ConditionDegraded, v1alpha1.ReasonMixedVersions,
			"members run %s: name a minor version in spec.version", strings.Join(slices.Sorted(maps.Keys(versions)), " and "))
	}
}

// judgeImage says what keeps a pod that is to stay from having its image. A pod
// that is older goes, also while the template is yet to be written.
func (j *Judgement) judgeImage(ordinal int) {
	pod := j.Seen.Pods[ordinal]
	if pod == nil || pod.DeletionTimestamp != nil || j.Outdated(ordinal) != "" || j.older(j.Seen, j.Desired, pod) {
		return
	}
	if fault := imageFault(pod); fault != "" {
		j.Say(v1alpha1.ConditionStalled, v1alpha1.ReasonImageUnavailable,
			"pod %s, %s: check %s and spec.imagePullSecrets%s", pod.Name, fault, j.imageField(), j.Desired.resolved())
	}
}

// imageField is the field of the spec that the members' image comes of.
func (j *Judgement) imageField() string {
	if j.Cluster.Common().Image != "" {
		return "spec.image"
	}
	return "spec.version"
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

func (j *Judgement) judgeStatus(ordinal int, m *memberapi.Status) {
	if m.State == memberapi.StateHeld && m.Hold != memberapi.HoldVolumeInUse && !j.Mending[ordinal] {
		condition := v1alpha1.ConditionStalled
		message, mends := j.growth(j.Seen).held(ordinal, m)
		if mends {
			condition = v1alpha1.ConditionDegraded
		}
		j.Say(condition, cmp.Or(holdReasons[m.Hold], v1alpha1.ReasonInvalidObject), "member %s: %s", j.PodName(ordinal), message)
	}
	j.judgeDiskSpace(ordinal, m)
	if m.ConfigError != "" {
		j.Say(v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidParameter,
			"spec.parameters: %s; the settings in force stay until it is mended", m.ConfigError)
	}
}

// judgeDiskSpace says what a database that runs on a full volume needs. Where it
// leads, only a person can go on, unless its volume grows by itself.
func (j *Judgement) judgeDiskSpace(ordinal int, m *memberapi.Status) {
	if !m.DiskFull || !m.Serving {
		return
	}
	remedy, grows := j.growth(j.Seen).roomFor(ordinal)
	kind := v1alpha1.ConditionDegraded
	if m.Role == v1alpha1.RolePrimary && !grows {
		kind = v1alpha1.ConditionStalled
	}
	j.Say(kind, v1alpha1.ReasonVolumeFull, "member %s: volume %s has no disk space left, and writes fail: %s", j.PodName(ordinal), j.VolumeName(ordinal), remedy)
}

// JudgeScale says what of a change is under way.
func (j *Judgement) JudgeScale() {
	for n := range j.Desired.Count {
		if s := j.Standings[n]; !s.Done() {
			j.Say(v1alpha1.ConditionReconciling, j.underWay(n, s), "%s", s.Message)
		}
	}
	if have, want := j.Seen.Membership(), j.Cluster.Common().DesiredReplicas(); have > want {
		j.Say(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown, "from %d members to %d", have, want)
	}
	for _, n := range slices.Sorted(maps.Keys(j.Seen.Pods)) {
		if n >= j.Desired.Count {
			j.Say(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown, "member %s is leaving", j.PodName(n))
		}
	}
	if set := j.Seen.StatefulSet; set != nil && set.Status.ObservedGeneration < set.Generation {
		j.Say(v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing, "the StatefulSet is being taken up")
	}
	if !j.Seen.Minted.Complete(j.Set) {
		j.Say(v1alpha1.ConditionReconciling, v1alpha1.ReasonCreating, "making certificates and credentials")
	}
}

// underWay is the reason of a member's standing in the life of the cluster.
func (j *Judgement) underWay(ordinal int, s Standing) string {
	reason := s.Reason
	if reason == v1alpha1.ReasonScalingUp && j.wasRolledOut(ordinal) {
		reason = v1alpha1.ReasonRestarting
	}
	if reason == v1alpha1.ReasonRestarting && j.versionChanges() {
		return v1alpha1.ReasonUpgrading
	}
	if !j.Born() {
		return v1alpha1.ReasonCreating
	}
	return reason
}

// wasRolledOut says whether a member was part of what was rolled out last: one
// that starts is then restarted, and not new.
func (j *Judgement) wasRolledOut(ordinal int) bool {
	record := j.Cluster.CommonStatus().RolledOut
	return record != nil && ordinal < int(record.Replicas)
}

// Born says whether there is a database system.
func (j *Judgement) Born() bool {
	return j.Desired.SystemIdentifier != "" && j.Cluster.CommonStatus().Version != ""
}

// versionChanges says whether some pod runs another image than the desired.
func (j *Judgement) versionChanges() bool {
	for n := range j.Desired.Count {
		if pod := j.Seen.Pods[n]; pod != nil {
			if ctr := j.container(pod.Spec); ctr != nil && ctr.Image != j.Desired.Image && ctr.Image != j.Desired.Pull && cmp.Or(pod.Annotations[v1alpha1.AnnotationImage], ctr.Image) != j.Desired.Asked {
				return true
			}
		}
	}
	return false
}

// JudgeVolumes says which volumes are not yet what was asked for.
func (j *Judgement) JudgeVolumes() {
	stuck := j.growth(j.Seen).stuck
	for _, n := range slices.Sorted(maps.Keys(stuck)) {
		j.Facts = append(j.Facts, stuck[n])
	}
	for _, v := range j.Desired.Volumes {
		live := j.Seen.Volumes[v.Ordinal]
		if !v.Member || live == nil || live.Status.Phase != corev1.ClaimBound {
			continue
		}
		have := live.Status.Capacity[corev1.ResourceStorage]
		condition, itself := v1alpha1.ConditionReconciling, ""
		if have.Cmp(j.Storage.Size) >= 0 { // nobody asked for it
			condition, itself = v1alpha1.ConditionDegraded, "by itself "
		}
		if v.Waits {
			j.Say(condition, v1alpha1.ReasonResizing, "volume %s grows %sonce it has the owner that spec.deletionPolicy asks for, and says what its data is (holdfast.dev/ annotations)", live.Name, itself)
		}
		if have.Cmp(v.Size) < 0 {
			j.Say(condition, v1alpha1.ReasonResizing, "volume %s grows %sfrom %s to %s", live.Name, itself, have.String(), v.Size.String())
		}
	}
}

// Serving is the number of members that answer.
func (j *Judgement) Serving() int {
	serving := 0
	for n := range j.Desired.Count {
		if m := j.Seen.Member(n); m != nil && m.Serving {
			serving++
		}
	}
	return serving
}

// Report is what status says of the members; the engine adds what it knows.
func (j *Judgement) Report() engine.Report {
	r := engine.Report{
		Image: j.Desired.Image, SystemIdentifier: j.Desired.SystemIdentifier, Replicas: int32(len(j.Seen.Pods)),
		Selector: labels.SelectorFromSet(j.Selector()).String(),
	}
	if j.Desired.Minted.Complete(j.Set) {
		r.CredentialsSecret = j.Named(SuffixApp)
	}
	for n := range j.Desired.Count {
		r.Members = append(r.Members, j.report(j.Seen, n, j.Standings[n]))
		if m := j.Seen.Member(n); m != nil && m.Serving && Ready(j.Seen.Pods[n]) {
			r.ReadyReplicas++
		}
	}
	return r
}
