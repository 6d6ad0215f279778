package memberset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Judgement is what one pass finds true of the members: facts, each read off the
// same view. Judging adds facts and changes nothing else.
type Judgement struct {
	View
	Facts []condition.Fact
	// Repairing are the members that the engine frees from their hold by itself.
	Repairing map[int]bool
	// WritesStop says that so many members lack disk space that the cluster
	// refuses writes, whatever their roles.
	WritesStop bool
}

// NewJudgement begins with what is wrong with the spec.
func NewJudgement(view View, stalls []condition.Fact) Judgement {
	return Judgement{View: view, Facts: stalls, Repairing: map[int]bool{}}
}

// AwaitsFirstAnswer says that a pod that is ready has not been asked yet: an operator that
// has just started knows nothing of members that serve all the time. The first
// answer, or its failure, wakes the loop.
func (o Observation) AwaitsFirstAnswer() bool {
	for _, pod := range o.Pods {
		m := o.Members[pod.Name]
		if o.Asking && IsReady(pod) && pod.DeletionTimestamp == nil && m.Status == nil && m.Err == "" {
			return true
		}
	}
	return false
}

// AddFact adds a fact that is true.
func (j *Judgement) AddFact(conditionType, reason, format string, args ...any) {
	j.Facts = append(j.Facts, condition.Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// AddMemberFact adds a fact that is true of one member, by its ordinal.
func (j *Judgement) AddMemberFact(ordinal int, conditionType, reason, format string, args ...any) {
	j.AddFact(conditionType, reason, format, args...)
	j.Facts[len(j.Facts)-1].Ordinal = ordinal
}

// AddAvailable says whether clients are served.
func (j *Judgement) AddAvailable(yes bool, reason, format string, args ...any) {
	j.AddFact(v1alpha1.ConditionAvailable, reason, format, args...)
	if !yes {
		j.Facts[len(j.Facts)-1].Status = metav1.ConditionFalse
	}
}

// JudgeMembers turns what members say into facts.
func (j *Judgement) JudgeMembers() {
	for n := range j.Desired.Count {
		if j.Observed.isVolumeDeleted(n) && !isInheritedAndDeleted(j.Set, j.Observed, n) {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonDataMissing,
				"volume %s is being deleted and goes when pod %s does: dump the data, or keep the pod, before anything restarts it", j.VolumeName(n), j.PodName(n))
		}
		j.judgeUncreated(n)
		m, s := j.Observed.Member(n), j.Standings[n]
		j.judgeImage(n)
		j.judgePause(n)
		if m != nil {
			j.judgeStatus(n, m)
		}
		if s.Broken {
			j.AddMemberFact(n, v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown, "%s", s.Message)
		}
	}
	versions := map[string]bool{}
	for n := range j.Desired.Count {
		if version := j.Versions.Members[n].Reported; version != "" && j.Standings[n].IsDone() {
			versions[version] = true
		}
	}
	if len(versions) > 1 {
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonMixedVersions,
			"members run %s: name a minor version in spec.version", strings.Join(slices.Sorted(maps.Keys(versions)), " and "))
	}
}

// judgeImage says what keeps a pod that is to stay from having its image. A pod
// that is older goes, also while the template is yet to be written.
func (j *Judgement) judgeImage(ordinal int) {
	pod := j.Observed.Pods[ordinal]
	if pod == nil || pod.DeletionTimestamp != nil || j.FindOutdated(ordinal) != "" || j.ages[ordinal].older {
		return
	}
	if fault := imageFault(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)); fault != "" {
		j.AddMemberFact(ordinal, v1alpha1.ConditionStalled, v1alpha1.ReasonImageUnavailable,
			"pod %s, %s: check %s and spec.imagePullSecrets%s", pod.Name, fault, imageField(j.Set), describePin(j.Desired))
	}
}

// imageField is the field of the spec that the members' image comes of.
func imageField(s objects.Set) string {
	if s.Cluster.Common().Image != "" {
		return "spec.image"
	}
	return "spec.version"
}

// holdReasons are the reasons of Stalled for what makes an agent hold its
// databaseContainer down.
var holdReasons = map[agentapi.Hold]string{
	agentapi.HoldDataVersion:  v1alpha1.ReasonVersionMismatch,
	agentapi.HoldDataMissing:  v1alpha1.ReasonDataMissing,
	agentapi.HoldVolumeFull:   v1alpha1.ReasonVolumeFull,
	agentapi.HoldDataStale:    v1alpha1.ReasonDataStale,
	agentapi.HoldDataDiverged: v1alpha1.ReasonDataDiverged,
	agentapi.HoldWALMissing:   v1alpha1.ReasonWALMissing,
}

func (j *Judgement) judgeStatus(ordinal int, m *agentapi.Status) {
	if m.State == agentapi.StateHeld && m.Hold != agentapi.HoldVolumeInUse && !j.Repairing[ordinal] {
		condition := v1alpha1.ConditionStalled
		message, repairs := j.growth.describeHold(ordinal, m)
		if repairs {
			condition = v1alpha1.ConditionDegraded
		}
		j.AddMemberFact(ordinal, condition, cmp.Or(holdReasons[m.Hold], v1alpha1.ReasonInvalidObject), "member %s: %s", j.PodName(ordinal), message)
	}
	j.judgeDiskSpace(ordinal, m)
	if m.ConfigError != "" && !j.isTuningRefusal(m.ConfigError) {
		j.AddMemberFact(ordinal, v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidParameter, "%s; correct or remove it: until then the settings in force stay", parameterFault(j.Desired.Config, m.ConfigError))
	}
}

// parameterFault names the field of what a member refuses: its report begins with
// the parameter where it knows which one is wrong.
func parameterFault(declared []byte, fault string) string {
	name, _, named := strings.Cut(fault, ": ")
	var config agentapi.ClusterConfig
	if named && json.Unmarshal(declared, &config) == nil {
		if _, is := config.Parameters[name]; is {
			return "spec.parameters." + fault
		}
	}
	return "spec.parameters: " + fault
}

// judgeDiskSpace says what a database that runs on a full volume needs. Where the
// cluster refuses writes for it, only a person can go on, unless the volume grows
// by itself.
func (j *Judgement) judgeDiskSpace(ordinal int, m *agentapi.Status) {
	if !m.DiskFull || !m.Serving {
		return
	}
	remedy, grows := j.growth.describeDiskSpace(ordinal)
	kind := v1alpha1.ConditionDegraded
	if (m.Role == v1alpha1.RolePrimary || j.WritesStop) && !grows {
		kind = v1alpha1.ConditionStalled
	}
	j.AddMemberFact(ordinal, kind, v1alpha1.ReasonVolumeFull, "member %s: volume %s has no disk space left, and writes fail: %s", j.PodName(ordinal), j.VolumeName(ordinal), remedy)
}

// JudgeScale says what of a change is under way.
func (j *Judgement) JudgeScale() {
	for n := range j.Desired.Count {
		if s := j.Standings[n]; !s.IsDone() {
			j.AddMemberFact(n, v1alpha1.ConditionReconciling, j.progressReason(n, s), "%s", s.Message)
		}
	}
	if members := j.Membership; members.Count > members.Declared {
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown, "from %d members to %d", members.Count, members.Declared)
	}
	for _, n := range j.Membership.Leaving {
		j.AddMemberFact(n, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown, "member %s is leaving", j.PodName(n))
	}
	if set := j.Observed.StatefulSet; set != nil && set.Status.ObservedGeneration < set.Generation {
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing, "the StatefulSet is being taken up")
	}
	if !j.Observed.Minted.IsComplete(j.Set) {
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonCreating, "making certificates and credentials")
	}
}

// progressReason is the reason of a member's standing in the life of the cluster.
func (j *Judgement) progressReason(ordinal int, s Standing) string {
	reason := s.Reason
	if reason == v1alpha1.ReasonScalingUp && wasRolledOut(j.Cluster, ordinal) {
		reason = v1alpha1.ReasonRestarting
	}
	if reason == v1alpha1.ReasonRestarting && j.versionChanges() {
		return v1alpha1.ReasonUpgrading
	}
	if !j.IsBootstrapped() {
		return v1alpha1.ReasonCreating
	}
	return reason
}

// wasRolledOut says whether a member was part of what was rolled out last: one
// that starts is then restarted, and not new.
func wasRolledOut(c v1alpha1.Cluster, ordinal int) bool {
	record := c.CommonStatus().RolledOut
	return record != nil && ordinal < int(record.Replicas)
}

// JudgeVolumes says which volumes are not yet what was asked for.
func (j *Judgement) JudgeVolumes() {
	stuck := j.growth.stuck
	for _, n := range slices.Sorted(maps.Keys(stuck)) {
		j.Facts = append(j.Facts, stuck[n])
	}
	for _, v := range j.Desired.Volumes {
		live := j.Observed.Volumes[v.Ordinal]
		if !v.Member || live == nil || live.Status.Phase != corev1.ClaimBound {
			continue
		}
		have := live.Status.Capacity[corev1.ResourceStorage]
		condition, itself := v1alpha1.ConditionReconciling, ""
		if have.Cmp(j.Storage.Size) >= 0 { // no user asked for it
			condition, itself = v1alpha1.ConditionDegraded, "by itself "
		}
		if v.Waits {
			j.AddMemberFact(v.Ordinal, condition, v1alpha1.ReasonResizing, "volume %s grows %sonce it has the owner that spec.deletionPolicy asks for, and says what its data is (holdfast.dev/ annotations)", live.Name, itself)
		}
		if have.Cmp(v.Size) < 0 {
			j.AddMemberFact(v.Ordinal, condition, v1alpha1.ReasonResizing, "volume %s grows %sfrom %s to %s", live.Name, itself, have.String(), v.Size.String())
		}
	}
}
