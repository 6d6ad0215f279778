package forecast

import (
	"reflect"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// StepKind is what a step of a forecast does.
type StepKind string

// The kinds of steps.
const (
	// SettingsTaken: members take up settings without a restart.
	SettingsTaken StepKind = "SettingsTaken"
	// VolumeCreated, VolumesGrow, VolumeKept and VolumeDeleted are about claims. A kept
	// one is that of a member that left.
	VolumeCreated StepKind = "VolumeCreated"
	VolumesGrow   StepKind = "VolumesGrow"
	VolumeKept    StepKind = "VolumeKept"
	VolumeDeleted StepKind = "VolumeDeleted"
	// MembersJoin: pods of new members begin. MemberLeaves: one ends for good.
	MembersJoin  StepKind = "MembersJoin"
	MemberLeaves StepKind = "MemberLeaves"
	// MemberRestarts: a pod is replaced. RestartInPlace: a database restarts in its pod.
	MemberRestarts StepKind = "MemberRestarts"
	RestartInPlace StepKind = "RestartInPlace"
	// Switchover: another member leads, as requested.
	Switchover StepKind = "Switchover"
	// GroupChange is a step of an engine's own, such as a new voter.
	GroupChange StepKind = "GroupChange"
	// BackupMade: a backup that something else waits for.
	BackupMade StepKind = "BackupMade"
	// DataRestored: the first member's volume is filled from a backup.
	DataRestored StepKind = "DataRestored"
	// ObjectChanges and ObjectDeleted are about objects that no pod is made from.
	ObjectChanges StepKind = "ObjectChanges"
	ObjectDeleted StepKind = "ObjectDeleted"
	// ClusterDeleted: the cluster's object is deleted, and its pods with it.
	ClusterDeleted StepKind = "ClusterDeleted"
)

// Step is one thing that happens.
type Step struct {
	Kind StepKind `json:"kind"`
	// Members are pods, Volumes claims, and Objects others by kind and name.
	Members []string `json:"members,omitempty"`
	Volumes []string `json:"volumes,omitempty"`
	Objects []string `json:"objects,omitempty"`
	// Settings that are taken up.
	Settings []string `json:"settings,omitempty"`
	// From and To are sizes.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Message says why, in the words of the operator's step.
	Message string `json:"message,omitempty"`
	// WritesPause says that clients cannot write for a while. With Successor, that is
	// until another member leads; without, until the same one is back.
	WritesPause bool `json:"writesPause,omitempty"`
	Successor   bool `json:"successor,omitempty"`
	// ReadersLeft of Readers members serve reads meanwhile.
	Readers     int `json:"readers,omitempty"`
	ReadersLeft int `json:"readersLeft,omitempty"`
	// OneWay says why a commit that reverts the change does not revert this; empty where it
	// does. DataAtRisk says that data is lost by it.
	OneWay     string `json:"oneWay,omitempty"`
	DataAtRisk bool   `json:"dataAtRisk,omitempty"`
}

// record adds a step. What happens to several members or volumes at the same time is one.
func (w *World) record(s Step) {
	if len(w.steps) > 0 && isMergeable(w.steps[len(w.steps)-1], s) {
		last := &w.steps[len(w.steps)-1]
		last.Members = append(last.Members, s.Members...)
		last.Volumes = append(last.Volumes, s.Volumes...)
		last.Objects = append(last.Objects, s.Objects...)
		last.Settings = append(last.Settings, s.Settings...)
		return
	}
	w.steps = append(w.steps, s)
}

// isMergeable says whether two steps differ only in what they are about, and happen at the
// same time.
func isMergeable(a, b Step) bool {
	switch a.Kind {
	case VolumesGrow, VolumeCreated, MembersJoin, ObjectChanges, ObjectDeleted:
	default:
		return false
	}
	a.Members, a.Volumes, a.Objects, a.Settings = nil, nil, nil, nil
	b.Members, b.Volumes, b.Objects, b.Settings = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

// recordConfig records which settings members take up with another configuration. Which
// members there are, and what is requested of them, is none.
func (w *World) recordConfig(before, after []byte) {
	if len(before) == 0 || len(w.Observed.Pods) == 0 {
		return
	}
	var was, is agentapi.ClusterConfig
	decode(before, &was)
	decode(after, &is)
	names := agentapi.ListDifferences(was.Parameters, is.Parameters)
	if was.VolumeSize != is.VolumeSize && is.DataLimit == 0 {
		names = append(names, "settings that follow from storage.size")
	}
	if was.DataLimit != is.DataLimit {
		names = append(names, "quota")
	}
	if !reflect.DeepEqual(was.Archive, is.Archive) {
		names = append(names, "archive")
	}
	one, other := was.FailoverConfig, is.FailoverConfig
	one.Switchover, one.Promotion, other.Switchover, other.Promotion = nil, nil, nil, nil
	if !reflect.DeepEqual(one, other) {
		names = append(names, "failover and synchronous replication")
	}
	if len(names) > 0 {
		w.record(Step{Kind: SettingsTaken, Settings: names})
	}
}
