package etcd

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Alarms of etcd.
const (
	alarmNoSpace = "NOSPACE"
	alarmCorrupt = "CORRUPT"
)

const (
	// fullPercent of its quota is more than what a member may use when writes
	// are let in again.
	fullPercent = 90
	// worthPercent that is not in use is worth a defragmentation when space has
	// run out.
	worthPercent = 5
)

// alarm says whether etcd has raised an alarm anywhere.
func (j *judgement) alarm(name string) bool {
	if !j.g.led {
		return false
	}
	for _, a := range j.o.Member(j.g.leader).Alarms {
		if kind, _, _ := strings.Cut(a, ":"); kind == name {
			return true
		}
	}
	return false
}

// full says whether some member has used up its quota.
func (j *judgement) full() bool {
	for n := range j.g.healthy {
		if j.o.Member(n).DataFill >= fullPercent {
			return true
		}
	}
	return false
}

// spaceStep lets writes in again after a member has run out of space: history
// goes, then the space that it took, then the alarm.
func (j *judgement) spaceStep() *engine.Step {
	if !j.alarm(alarmNoSpace) {
		return nil
	}
	if !j.full() {
		return j.paced(j.on(j.g.leader, stepDisarm, alarmNoSpace, "every member has room in its quota again"))
	}
	if s := j.defragment(worthPercent, time.Time{}, "the quota is used up"); s != nil {
		return j.paced(s)
	}
	return j.paced(j.on(j.g.leader, stepCompact, "", "the quota is used up: the history of keys is dropped"))
}

// judgeSpace says what etcd's alarms mean.
func (j *judgement) judgeSpace() {
	if j.alarm(alarmCorrupt) {
		j.Say(v1alpha1.ConditionStalled, v1alpha1.ReasonDataCorrupt,
			"etcd says that members' data differs (%s): find the odd one with etcdctl endpoint hashkv, delete its PersistentVolumeClaim and its pod, and disarm the alarm with etcdctl alarm disarm", strings.Join(j.o.Member(j.g.leader).Alarms, ", "))
	}
	if !j.alarm(alarmNoSpace) {
		return
	}
	compacted, tried := j.o.Tried[stepCompact+" "+j.PodName(j.g.leader)]
	if tried && j.full() && j.now.Sub(compacted) > pauses[stepDefragment] && j.defragment(worthPercent, time.Time{}, "") == nil {
		j.Say(v1alpha1.ConditionStalled, v1alpha1.ReasonQuotaExceeded,
			"the data fills its quota of %s, and etcd takes no more writes: delete keys, or set spec.quota to more", resource.NewQuantity(quota(j.c, j.Desired), resource.BinarySI))
		return
	}
	j.Say(v1alpha1.ConditionDegraded, v1alpha1.ReasonQuotaExceeded, "etcd takes no writes, for its quota is used up: history and unused space are given up")
}
