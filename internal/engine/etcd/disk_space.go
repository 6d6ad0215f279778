package etcd

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
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

// hasAlarm says whether etcd has raised an alarm anywhere.
func (j *judgement) hasAlarm(name string) bool {
	if !j.g.led {
		return false
	}
	for _, a := range readGroup(j.o.Member(j.g.leader)).Alarms {
		if kind, _, _ := strings.Cut(a, ":"); kind == name {
			return true
		}
	}
	return false
}

// isFull says whether some member has used up its quota.
func (j *judgement) isFull() bool {
	for n := range j.g.healthy {
		if readGroup(j.o.Member(n)).DataFill >= fullPercent {
			return true
		}
	}
	return false
}

// spaceStep lets writes in again after a member has run out of space: what is
// not in use is given back; where that is not enough, history goes, and then the
// space that it took. The alarm goes last.
func (j *judgement) spaceStep() *engine.Step {
	if !j.hasAlarm(alarmNoSpace) {
		return nil
	}
	if !j.isFull() {
		return j.paceStep(j.stepOn(j.g.leader, stepDisarm, alarmNoSpace, "every member has space in its quota again"))
	}
	if s := j.defragmentMembersStep(j.mayShrink, "the quota is used up"); s != nil {
		return j.paceStep(s)
	}
	return j.paceStep(j.stepOn(j.g.leader, stepCompact, "", "the quota is used up: the history of keys is dropped"))
}

// mayShrink says whether a full member would take less space after a
// defragmentation. What it says of its unused space is not all: without writes,
// etcd does not count what a compaction has freed.
func (j *judgement) mayShrink(ordinal int) bool {
	if !j.g.healthy[ordinal] || readGroup(j.o.Member(ordinal)).DataFill < fullPercent {
		return false
	}
	if j.wastesSpace(ordinal, worthPercent, time.Time{}) {
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
	if compacted.IsZero() || !j.isFull() {
		return false
	}
	if first := j.o.Tried[firstCompact]; !first.IsZero() && compacted.After(first) {
		return true
	}
	last := compacted
	for n := range j.g.healthy {
		if readGroup(j.o.Member(n)).DataFill < fullPercent {
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
	if j.hasAlarm(alarmCorrupt) {
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonDataCorrupt,
			"etcd says that members' data differs (%s): find the odd one with etcdctl endpoint hashkv, delete its PersistentVolumeClaim and its pod, and disarm the alarm with etcdctl alarm disarm", strings.Join(readGroup(j.o.Member(j.g.leader)).Alarms, ", "))
	}
	if !j.hasAlarm(alarmNoSpace) {
		return
	}
	kind := v1alpha1.ConditionDegraded
	if j.inVain() {
		kind = v1alpha1.ConditionStalled
	}
	j.AddFact(kind, v1alpha1.ReasonQuotaExceeded, "%s", j.quotaMessage())
}

// quotaMessage says what does not work while the quota is used up, and what helps.
func (j *judgement) quotaMessage() string {
	found := fmt.Sprintf("etcd refuses writes (NOSPACE): the data fills its quota of %s", resource.NewQuantity(dataQuota(j.c, j.Desired, j.o.Quota)>>20<<20, resource.BinarySI))
	const remedy = "delete keys, or set spec.quota to more, and spec.storage.size to twice as much at least"
	if j.inVain() {
		return found + ", also after the history of keys was compacted and members were defragmented: " + remedy
	}
	return found + ". Holdfast compacts the history of keys and defragments members; if that is not enough, " + remedy
}

// fullVolumes are the names of the volumes of serving members that have no disk
// space left, sorted.
func (j *judgement) fullVolumes() (names []string) {
	for _, n := range slices.Sorted(maps.Keys(j.g.healthy)) {
		if j.o.Member(n).DiskFull {
			names = append(names, j.VolumeName(n))
		}
	}
	return names
}

// diskStopsWrites says whether too few members have disk space to agree on a
// write: each writes it to its volume first.
func (j *judgement) diskStopsWrites() bool {
	full := len(j.fullVolumes())
	return full > 0 && len(j.g.healthy)-full < memberset.CountMajority(j.g.voters)
}
