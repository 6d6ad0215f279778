package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The fields of CommonStatus are what users and their tools read of every cluster: they
// are as many as that is, and stay where they are.

// CommonStatus is the part of the status that all kinds of cluster share.
type CommonStatus struct {
	// ObservedGeneration is the newest generation of the spec that this status
	// speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// RolledOut is the newest generation of the spec that was rolled out. From
	// then on what breaks is repaired, and no change is under way.
	// +optional
	RolledOut *RolledOutStatus `json:"rolledOut,omitempty"`

	// Phase is a summary for people. No decision reads it.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Conditions, kstatus-compatible: Ready, Reconciling, Stalled, Available,
	// Synced, Degraded, BackedUp.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Image that members run, pinned to a digest where the runtime reports one.
	// +optional
	Image string `json:"image,omitempty"`

	// Version of the database that members run.
	// +optional
	Version string `json:"version,omitempty"`

	// Replicas is the number of members.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// Ready is the number of members that serve, of those declared, such as 2/3.
	// +optional
	Ready string `json:"ready,omitempty"`

	// ReadyReplicas is the number of members that serve.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// Selector of members' pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Primary is the pod that takes writes, or that leads its group.
	// +optional
	Primary string `json:"primary,omitempty"`

	// Election is what the members' own election has decided, of a kind whose
	// members elect a primary by a Lease.
	// +optional
	Election *ElectionStatus `json:"election,omitempty"`

	// Members, by ordinal.
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []MemberStatus `json:"members,omitempty"`

	// Agent is the image that members take their agents from.
	// +optional
	Agent *AgentStatus `json:"agent,omitempty"`

	// Endpoints that clients connect to.
	// +optional
	Endpoints *EndpointsStatus `json:"endpoints,omitempty"`

	// CredentialsSecret is the Secret that applications connect with.
	// +optional
	CredentialsSecret string `json:"credentialsSecret,omitempty"`

	// SystemIdentifier of the database system that this cluster was bootstrapped with.
	// While it is set, no empty volume is ever initialized as a new database.
	// +optional
	SystemIdentifier string `json:"systemIdentifier,omitempty"`

	// Requests that were made by annotation: the last of each type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Requests []RequestStatus `json:"requests,omitempty"`

	// Orders is the earlier name of requests. It is read so that no request is
	// carried out a second time, moved there by the first pass, and never
	// written.
	// +optional
	// +listType=map
	// +listMapKey=type
	Orders []RequestStatusBefore `json:"orders,omitempty"`

	// Schedules of the spec, and where each of them stands.
	// +optional
	// +listType=map
	// +listMapKey=name
	Schedules []ScheduleStatus `json:"schedules,omitempty"`

	// LastBackup is the newest good one.
	// +optional
	LastBackup *LastBackup `json:"lastBackup,omitempty"`

	// BackupPlace is where backups are stored. If spec.backup.destination is
	// removed, it keeps its value, and no backup is made: see BackedUp.
	// +optional
	BackupPlace *BackupPlace `json:"backupPlace,omitempty"`

	// StoreCheck is the result of the last check of the backup destination.
	// +optional
	StoreCheck *StoreCheck `json:"storeCheck,omitempty"`

	// Archive is the state of the WAL archive, if spec.backup.continuous is true.
	// +optional
	Archive *ArchiveStatus `json:"archive,omitempty"`

	// Drill is what restore drills of the backups have shown.
	// +optional
	Drill *DrillStatus `json:"drill,omitempty"`

	// Restore is the restore that the cluster began with.
	// +optional
	Restore *RestoreStatus `json:"restore,omitempty"`

	// Import is the import that the cluster began with. PostgreSQL only.
	// +optional
	Import *ImportStatus `json:"import,omitempty"`

	// DeletionPolicy is what deleting the cluster does to its data now. It is
	// Delete from before the first volume, CA or credential gets the owner reference
	// by which Kubernetes deletes it, until none has one: then it is Retain.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// NextBackup is when the schedule makes the next one.
	// +optional
	NextBackup *metav1.Time `json:"nextBackup,omitempty"`

	// Drift that was detected.
	// +optional
	Drift *DriftStatus `json:"drift,omitempty"`

	// Insights is what the members found in the text logs of their databases.
	// +optional
	Insights *InsightsStatus `json:"insights,omitempty"`

	// Recommendations about settings and resources, the most urgent first. No condition rests
	// on them.
	// kubectl holdfast recommend writes a patch from them.
	// +optional
	// +listType=map
	// +listMapKey=field
	// +kubebuilder:validation:MaxItems=8
	Recommendations []RecommendationStatus `json:"recommendations,omitempty"`

	// Tuning is what spec.tuning.mode Apply tries, keeps and does not try again. No condition
	// rests on it.
	// +optional
	Tuning *TuningStatus `json:"tuning,omitempty"`

	// WritePauses are the last three times in which no member took writes, of each
	// event: kubectl holdfast plan quotes them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=9
	WritePauses []WritePause `json:"writePauses,omitempty"`

	// LastHandledReconcileAt is the value of the annotation
	// reconcile.fluxcd.io/requestedAt that was handled last.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}

// RolledOutStatus is a generation of the spec that was rolled out once.
type RolledOutStatus struct {
	// Generation of the spec.
	Generation int64 `json:"generation"`
	// Replicas is the number of members that it declares.
	Replicas int32 `json:"replicas"`
}

// AgentStatus is where the members' agents come from. An upgrade of the operator changes
// no agent: see docs/guides/operator-upgrade.md.
type AgentStatus struct {
	// Image that new pods take their agents from. It becomes that of the operator when
	// pods are replaced for a change of the spec, or by the request
	// holdfast.dev/update-agents.
	Image string `json:"image"`
	// Available is the image of the operator, while Image or a member has another.
	// +optional
	Available string `json:"available,omitempty"`
	// Outdated are the members whose agents are not of the image of the operator.
	// +optional
	// +listType=atomic
	Outdated []string `json:"outdated,omitempty"`
}

// MemberStatus is one member, in states rather than numbers.
type MemberStatus struct {
	// Name of the pod.
	Name string `json:"name"`
	// Role: primary, replica or member: one of a group of equals, or not
	// serving yet.
	// +optional
	Role string `json:"role,omitempty"`
	// State, such as Starting, Cloning, CatchingUp, Streaming, Running.
	// +optional
	State string `json:"state,omitempty"`
	// Version of the database.
	// +optional
	Version string `json:"version,omitempty"`
	// AgentVersion is the version of Holdfast that the member's agent is of.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// Node that the pod runs on.
	// +optional
	Node string `json:"node,omitempty"`
	// VolumeUID is the UID of the claim of the member's volume. The request
	// holdfast.dev/discard-volume names the volume by it.
	// +optional
	VolumeUID string `json:"volumeUID,omitempty"`
	// Fences counts how often the member's database was stopped by force since its
	// pod began, since it could not renew the Lease in time.
	// +optional
	Fences int64 `json:"fences,omitempty"`
	// Message says what is wrong, or what the member waits for.
	// +optional
	Message string `json:"message,omitempty"`
}

// ElectionStatus is what the members' election has decided.
type ElectionStatus struct {
	// Leader is the pod that leads since Term began, or that led last. Whether it
	// takes writes now is in primary.
	Leader string `json:"leader"`
	// Term counts the changes of the leader.
	Term int64 `json:"term"`
	// MayLead are the members whose volumes may lead by the Lease. A volume whose
	// member does not answer is listed by its ID.
	// +optional
	// +listType=atomic
	MayLead []string `json:"mayLead,omitempty"`
	// Unconfirmed are members that have not followed the leader since Term began.
	// Their volumes may have the only copy of some WAL, and are not deleted.
	// +optional
	// +listType=atomic
	Unconfirmed []string `json:"unconfirmed,omitempty"`
	// Synchronous is the quorum that acknowledges commits, by the Lease; absent
	// without one.
	// +optional
	Synchronous *SynchronousStatus `json:"synchronous,omitempty"`
	// LeaseDuration is that of the Lease now, such as 10s.
	// +optional
	LeaseDuration string `json:"leaseDuration,omitempty"`
}

// SynchronousStatus is the quorum by which commits are acknowledged.
type SynchronousStatus struct {
	// State is Full: as many standbys flush a commit before it is acknowledged as are
	// declared; Degraded: fewer do; or Waiting: commits wait, since too few of the
	// quorum stream.
	State string `json:"state"`
	// Number of standbys that flush a commit before it is acknowledged.
	Number int32 `json:"number"`
	// Members of the quorum, the primary included. A volume whose member does not
	// answer is listed by its ID.
	// +listType=atomic
	Members []string `json:"members"`
	// Streaming are the standbys of the quorum that stream now.
	// +optional
	// +listType=atomic
	Streaming []string `json:"streaming,omitempty"`
}

// The states of synchronous replication.
const (
	SynchronousFull     = "Full"
	SynchronousDegraded = "Degraded"
	SynchronousWaiting  = "Waiting"
)

// RequestStatus is the last request of a type that was accepted.
type RequestStatus struct {
	// Type of the request: the name of its annotation without the prefix
	// holdfast.dev/.
	Type string `json:"type"`
	// ID that the request was made with. A request is carried out once: only
	// another ID is accepted next.
	ID string `json:"id"`
	// Target is the pod that carries it out.
	// +optional
	Target string `json:"target,omitempty"`
	// MemberID is the target's ID in its group, where there is one.
	// +optional
	MemberID string `json:"memberID,omitempty"`
	// Term of the leader that the request is for, where there is one.
	// +optional
	Term int64 `json:"term,omitempty"`
	// VolumeUID is the UID of the claim that the request discards, where it does.
	// +optional
	VolumeUID string `json:"volumeUID,omitempty"`
	// Result says what was done; empty while the request is being carried out.
	// +optional
	Result string `json:"result,omitempty"`
}

// RequestStatusBefore is RequestStatus as it was recorded under its earlier
// name.
type RequestStatusBefore struct {
	// Type of the request.
	Type string `json:"type"`
	// Token is the request's ID.
	Token string `json:"token"`
	// Target is the pod that carries it out.
	// +optional
	Target string `json:"target,omitempty"`
	// MemberID is the target's ID in its group, where there is one.
	// +optional
	MemberID string `json:"memberID,omitempty"`
	// Result says what was done.
	// +optional
	Result string `json:"result,omitempty"`
}

// LastBackup is a backup that is complete and was verified.
type LastBackup struct {
	// Name of the Backup.
	Name string `json:"name"`
	// Time when it was begun: a restore brings back what was there then, or
	// later.
	Time metav1.Time `json:"time"`
}

// ScheduleStatus is the state of one schedule.
type ScheduleStatus struct {
	// Name of the scheduled task, such as Defragmentation.
	Name string `json:"name"`
	// Schedule that the slots are of, followed by its time zone unless that is
	// UTC.
	Schedule string `json:"schedule"`
	// LastSlot is the newest slot that was handled.
	// +optional
	LastSlot *metav1.Time `json:"lastSlot,omitempty"`
	// NextSlot is the first slot that was not handled yet. It is in the past
	// while its task runs, or waits until it is safe.
	// +optional
	NextSlot *metav1.Time `json:"nextSlot,omitempty"`
	// Message says why nothing was done at LastSlot; empty if something was.
	// +optional
	Message string `json:"message,omitempty"`
	// Skipped counts the slots at which nothing was done.
	// +optional
	Skipped int64 `json:"skipped,omitempty"`
	// LastSkipped are the newest of them, newest first; five at most.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	LastSkipped []SkippedSlot `json:"lastSkipped,omitempty"`
}

// SkippedSlot is a slot of a schedule at which nothing was done.
type SkippedSlot struct {
	// Slot that was skipped.
	Slot metav1.Time `json:"slot"`
	// Reason why.
	Reason string `json:"reason"`
}

// EndpointsStatus names the addresses that clients connect to, as host:port.
type EndpointsStatus struct {
	// ReadWrite reaches the primary.
	// +optional
	ReadWrite string `json:"readWrite,omitempty"`
	// ReadOnly reaches replicas that follow closely.
	// +optional
	ReadOnly string `json:"readOnly,omitempty"`
}

// DriftStatus is what drift was detected.
type DriftStatus struct {
	// Last are the newest drifts, newest first; ten at most.
	// +optional
	// +listType=atomic
	Last []DriftRecord `json:"last,omitempty"`
}

// DriftRecord is one change that another client made to an owned object.
type DriftRecord struct {
	// Time when it was detected.
	Time metav1.Time `json:"time"`
	// Object as Kind/name.
	Object string `json:"object"`
	// Path of the field.
	// +optional
	Path string `json:"path,omitempty"`
	// Manager is the field manager that the API server recorded: a name that
	// the client chose, not an identity.
	// +optional
	Manager string `json:"manager,omitempty"`
	// Operation: Apply, Update, removed, deleted, admission, unattributed or ALTER SYSTEM.
	// +optional
	Operation string `json:"operation,omitempty"`
	// Action: Reverted, Reported or Contested.
	Action string `json:"action"`
}
