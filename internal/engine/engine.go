// Package engine is the contract between the generic reconcile loop and the
// operational knowledge of one kind of database. An engine observes without
// judging, plans without touching, and acts one step at a time.
package engine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// Engine is the operational knowledge of one kind of database. C is its kind,
// O what it observes.
type Engine[C v1alpha1.Cluster, O any] interface {
	// Observe reads caches and memory, and never judges.
	Observe(ctx context.Context, c C) (O, error)
	// Plan judges and never touches: no client, no clock, no randomness.
	Plan(c C, o O, now time.Time) Plan
	// PlanCopy says how the data of a cluster is copied now: it judges and never
	// touches.
	PlanCopy(c C, o O) CopyPlan
	// PlanRestore says how a cluster begins with a backup: it judges and never
	// touches.
	PlanRestore(c C, o O) RestorePlan
	// Act does the one step, under the preconditions that it carries.
	Act(ctx context.Context, c C, s Step) error
}

// Plan is what should exist, the one step to take, and what is true.
type Plan struct {
	// Objects are desired, in the order in which they are applied.
	Objects []runtime.ApplyConfiguration
	// Complete says whether Objects is the whole set, so that what is not in
	// it may be pruned.
	Complete bool
	// BackupVolume is the volume that backups are kept on, which is made for the
	// first of them and is among Objects from then on; nil for none to make.
	BackupVolume runtime.ApplyConfiguration
	// Recorded are objects that are the cluster's whatever their labels say.
	Recorded []types.UID
	// Claims are the PersistentVolumeClaims by whose state Objects were made.
	Claims map[string]types.UID
	// Notes tell people what applying Objects does beside following the spec.
	Notes []Note
	// Drifts are changes that another client made to what is not applied, and that
	// Step puts right.
	Drifts []apply.Drift
	// Tolerated is what admission and others made of pods: it is reported, and
	// left.
	Tolerated []condition.Tolerated
	// Resets are what members have reset in their databases, in words.
	Resets []string
	// Step is the one operation to do in this pass; nil for none.
	Step *Step
	// Facts become conditions. None at all means that nothing can be judged
	// yet, and that the status stays as it is.
	Facts []condition.Fact
	// Import fills the first database from another server; nil for none.
	Import *Import
	// Demand is a backup that is wanted now, whatever the schedule; nil for none.
	Demand *Demand
	// Report is what status says of members and endpoints.
	Report Report
	// Recheck is when to look again at what no watch reports; 0 for never.
	Recheck time.Duration
}

// Demand is a backup to make once.
type Demand struct {
	// Name of the Backup.
	Name string
	// Since when another one that is begun does as well; zero where none does.
	Since time.Time
	// Before names the version that waits for it; empty for none. Such a one is
	// kept for a week at least.
	Before string
}

// Note becomes an event on the cluster once a pass has changed its object.
type Note struct {
	// Kind and Name of the object that the plan changes.
	Kind, Name string
	// Reason from the list in api/v1alpha1, and Action in CamelCase.
	Reason, Action string
	// Message says what becomes of the object, and why.
	Message string
}

// SoonestOf of the times that are set; 0 for none.
func SoonestOf(times ...time.Duration) time.Duration {
	var first time.Duration
	for _, t := range times {
		if t > 0 && (first == 0 || t < first) {
			first = t
		}
	}
	return first
}

// Step is one operation, as data: log line, event and test read the same
// value.
type Step struct {
	// Type names the operation, in CamelCase.
	Type string
	// Target is the object or member that it is done to.
	Target string
	// UID and ResourceVersion of the target, where it must still be that one.
	UID             types.UID
	ResourceVersion string
	// Subject is what the operation is about, in the terms of the engine.
	Subject string
	// Suspended says that the step is taken in a suspended cluster, too.
	Suspended bool
	// Message says to a person what is done and why.
	Message string
}

// String is the step as a log line or an event shows it.
func (s Step) String() string { return s.Type + " " + s.Target + ": " + s.Message }

// Report is the part of the status that an engine fills.
type Report struct {
	Image, Version, Primary, CredentialsSecret, SystemIdentifier, Selector string
	Replicas, ReadyReplicas                                                int32
	Members                                                                []v1alpha1.MemberStatus
	Endpoints                                                              *v1alpha1.EndpointsStatus
	Requests                                                               []v1alpha1.RequestStatus
	Schedules                                                              []v1alpha1.ScheduleStatus
	// Agent is what members take their agents from.
	Agent *v1alpha1.AgentStatus
	// Insights of the members' text logs; nil for none.
	Insights *v1alpha1.InsightsStatus
	// Recommendations about settings and resources.
	Recommendations []v1alpha1.RecommendationStatus
	// Election of the members; nil of a kind whose members hold none.
	Election *v1alpha1.ElectionStatus
	// Archive of the WAL; nil for none. Backups are none of the engine's, so its
	// RestorableFrom is what it was.
	Archive *v1alpha1.ArchiveStatus
}

// Blocked is an error that only a person can fix. It becomes Stalled, and is
// not tried again until something changes.
type Blocked struct {
	// Reason from the list in api/v1alpha1.
	Reason string
	// Message names the field and the remedy.
	Message string
}

// Error implements error.
func (b *Blocked) Error() string { return b.Reason + ": " + b.Message }
