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
	// compactionTakes is how long members are given to drop the history behind
	// the scenes.
	compactionTakes = 15 * time.Second
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

// spaceStep lets writes in again after a member has run out of space: what is
// not in use is given back; where that is not enough, history goes, and then the
// space that it took. The alarm goes last.
func (j *judgement) spaceStep() *engine.Step {
	if !j.alarm(alarmNoSpace) {
		return nil
	}
	if !j.full() {
		return j.paced(j.on(j.g.leader, stepDisarm, alarmNoSpace, "every member has room in its quota again"))
	}
	if s := j.defragment(j.mayShrink, "the quota is used up"); s != nil {
		return j.paced(s)
	}
	return j.paced(j.on(j.g.leader, stepCompact, "", "the quota is used up: the history of keys is dropped"))
}

// mayShrink says whether a full member would take less space after a
// defragmentation. What it says of its unused space is not all: without writes,
// etcd does not count what a compaction has freed.
func (j *judgement) mayShrink(ordinal int) bool {
	if !j.g.healthy[ordinal] || j.o.Member(ordinal).DataFill < fullPercent {
		return false
	}
	if j.wastes(ordinal, worthPercent, time.Time{}) {
		return true
	}
	compacted := j.o.Tried[stepCompact]
	if compacted.IsZero() || j.o.Tried[stepDefragment+" "+j.PodName(ordinal)].After(compacted) {
		return false
	}
	if wait := compacted.Add(compactionTakes).Sub(j.now); wait > 0 {
		j.recheckIn(wait)
		return false
	}
	return true
}

// inVain says whether history has gone, every full member has given back its
// space since, and that was not enough. It stays true while that is tried again.
func (j *judgement) inVain() bool {
	compacted := j.o.Tried[stepCompact]
	if compacted.IsZero() || !j.full() {
		return false
	}
	if first := j.o.Tried[firstCompact]; !first.IsZero() && compacted.After(first) {
		return true
	}
	last := compacted
	for n := range j.g.healthy {
		if j.o.Member(n).DataFill < fullPercent {
			continue
		}
		at := j.o.Tried[stepDefragment+" "+j.PodName(n)]
		if !at.After(compacted) {
			return false
		}
		if at.After(last) {
			last = at
		}
	}
	if wait := last.Add(pauses[stepDefragment]).Sub(j.now); wait > 0 {
		j.recheckIn(wait)
		return false
	}
	return true
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
	if j.inVain() {
		j.Say(v1alpha1.ConditionStalled, v1alpha1.ReasonQuotaExceeded,
			"the data fills its quota of %s, and etcd takes no more writes: delete keys, or set spec.quota to more", resource.NewQuantity(quota(j.c, j.Desired), resource.BinarySI))
		return
	}
	j.Say(v1alpha1.ConditionDegraded, v1alpha1.ReasonQuotaExceeded, "etcd takes no writes, for its quota is used up: history and unused space are given up")
}
