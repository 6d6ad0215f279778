// Package v1alpha1 holds the kinds of the API group holdfast.dev, and the one
// list of condition types and reasons that their status speaks in.
//
// +kubebuilder:object:generate=true
// +groupName=holdfast.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "holdfast.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PostgresCluster{}, &PostgresClusterList{}, &EtcdCluster{}, &EtcdClusterList{}, &MySQLCluster{}, &MySQLClusterList{}, &Database{}, &DatabaseList{}, &Backup{}, &BackupList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// BackupFieldManager is the field manager of what the pod that makes a backup
// writes: status.run of its Backup.
const BackupFieldManager = "holdfast-backup"

// BackupFinalizer keeps a Backup until it is settled what becomes of its data.
const BackupFinalizer = "holdfast.dev/backup-data"

// Suffixes of the names of what holds data, or is needed to read it, and of what backups
// need.
const (
	// SuffixCA of the Secret with the cluster's CA, and SuffixInternal of the one with the
	// credentials of its members.
	SuffixCA       = "-ca"
	SuffixInternal = "-internal"
	// SuffixBackup of the ServiceAccount of Jobs that make backups.
	SuffixBackup = "-backup"
	// SuffixBackups of the volume that backups are kept on.
	SuffixBackups = "-backups"
)

// RequestScaleDown is the type of the switchover that the operator itself requests,
// since the member that leads is beyond spec.replicas. It has no annotation.
const RequestScaleDown = "scale-down"

// FieldManager is the server-side apply field manager of everything that the
// operator writes.
const FieldManager = "holdfast"

// AgentFieldManager is the field manager of what the members' agents write:
// the role label of pods and the primary Lease.
const AgentFieldManager = "holdfast-agent"

// Labels and annotations: a contract that users and tests rely on.
const (
	// LabelCluster names the cluster that an object belongs to.
	LabelCluster = "holdfast.dev/cluster"
	// LabelRole is the role of a member's pod: primary, replica or member.
	LabelRole = "holdfast.dev/role"
	// LabelMember marks a volume that holds a current member; its value is
	// the ordinal. A retained volume of a former member does not carry it.
	LabelMember = "holdfast.dev/member"
	// LabelKind is the kind of the cluster that an object belongs to, in
	// lower case.
	LabelKind = "holdfast.dev/kind"
	// LabelBackup names the Backup that an object belongs to. LabelKind of such
	// an object is that of no cluster, so that no Service takes its pods for
	// members.
	LabelBackup = "holdfast.dev/backup"
	// LabelSchedule on a Backup is the slot of the schedule that it was made
	// for; those by hand do not carry it.
	LabelSchedule = "holdfast.dev/schedule"
	// LabelBefore on a Backup is the version of the database that waited for it:
	// it was made before an upgrade, and stays for a week at least.
	LabelBefore = "holdfast.dev/before"
	// LabelClusterUID on a Backup by schedule is the UID of the cluster that it
	// was made for: another cluster of the same name has no part in it.
	LabelClusterUID = "holdfast.dev/cluster-uid"
	// LabelRestore on what a restore needs while it lasts is the kind of the
	// cluster that is restored, in lower case. LabelKind of such an object is that
	// of no cluster, so that no Service takes its pods for members.
	LabelRestore = "holdfast.dev/restore"
	// LabelImport on what an import needs while it lasts is the kind of the cluster
	// that is filled, in lower case. LabelKind of such an object is that of no
	// cluster. In the selector of a Service it keeps clients out: no member has it.
	LabelImport = "holdfast.dev/import"
	// LabelStoreCheck on what tries whether a store can be used is the kind of the
	// cluster whose store it is, in lower case. LabelKind of such an object is that
	// of no cluster.
	LabelStoreCheck = "holdfast.dev/store-check"
	// LabelDrill on what a restore drill needs is the kind of the cluster whose
	// backup is restored on trial, in lower case. LabelKind of such an object is
	// that of no cluster either.
	LabelDrill = "holdfast.dev/drill"
	// LabelManagedBy and ManagedBy mark every owned object.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "holdfast"

	// AnnotationAppliedHash is the hash of what Holdfast last applied.
	AnnotationAppliedHash = "holdfast.dev/applied-hash"
	// AnnotationRollout on a pod is the hash of those parts of the spec that
	// only a new pod can take up.
	AnnotationRollout = "holdfast.dev/rollout"
	// AnnotationImage on a pod is the image that the spec asked for when the
	// pod was declared: with a tag, where the pod may name a digest.
	AnnotationImage = "holdfast.dev/image"
	// AnnotationAgentImage on a StatefulSet is the image that its pods take their agents
	// from, as Holdfast applied it: admission may have named a mirror in the template.
	AnnotationAgentImage = "holdfast.dev/agent-image"
	// AnnotationTemplateVersion on a StatefulSet is the version of what Holdfast itself
	// declares in the template of its pods; none is version 1. It moves when pods are
	// replaced anyway.
	AnnotationTemplateVersion = "holdfast.dev/template-version"
	// AnnotationSystemIdentifier on a volume or a Lease is the identifier of
	// the database system that was bootstrapped there. It forbids a second bootstrap.
	AnnotationSystemIdentifier = "holdfast.dev/system-identifier"
	// AnnotationCluster on a volume is the UID of the cluster that it was made
	// for, and from its bootstrap on that of the cluster whose data it holds.
	AnnotationCluster = "holdfast.dev/cluster-uid"
	// AnnotationDatabase and AnnotationOwner on a volume are the first database
	// and its owner, as its data was made with them.
	AnnotationDatabase = "holdfast.dev/database"
	AnnotationOwner    = "holdfast.dev/owner"
	// AnnotationRecoverQuorum on an EtcdCluster or a MySQLCluster asks to go on with
	// the newest survivor when the majority of the members is lost for good. Its value
	// is an ID of the user's choice: each is carried out once.
	AnnotationRecoverQuorum = "holdfast.dev/recover-quorum"
	// AnnotationContinueWithOlderData on a PostgresCluster asks a primary that is
	// held for DataStale to go on with the data that it has, on a new timeline.
	// Its value is an ID of the user's choice: each is carried out once.
	AnnotationContinueWithOlderData = "holdfast.dev/continue-with-older-data"
	// AnnotationSwitchover on a PostgresCluster or a MySQLCluster asks its primary to
	// step down in order, so that another member leads. Its value is an ID of the user's choice, or
	// <ID>@<pod> for one member: each ID is carried out once.
	AnnotationSwitchover = "holdfast.dev/switchover"
	// AnnotationPromote on a PostgresCluster without a primary asks one member to
	// lead with what it has, whatever others have. Its value is <ID>@<pod>: each ID
	// is carried out once.
	AnnotationPromote = "holdfast.dev/promote"
	// AnnotationDiscardVolume on a PostgresCluster discards the volume of a replica,
	// which is then copied again on a new one. The value is <ID>@<UID of the claim>, as
	// in volumeUID of status.members, and each ID is carried out once.
	AnnotationDiscardVolume = "holdfast.dev/discard-volume"
	// AnnotationUpdateAgents on a cluster asks to replace, one after the other, the pods
	// whose agents are not of the operator's image. Its value is an ID of the user's
	// choice: each is carried out once.
	AnnotationUpdateAgents = "holdfast.dev/update-agents"
	// AnnotationRestoredBy on a volume is the UID of the cluster whose restore
	// fills it. Until it says which database system it holds, it may hold a part
	// of one.
	AnnotationRestoredBy = "holdfast.dev/restored-by"
	// AnnotationGiven on the Job of a restore, or of a check of a store, is the
	// hash of what it was given: what it found is true of that.
	AnnotationGiven = "holdfast.dev/given"
	// AnnotationScaledAway on a volume is what spec.deletionPolicy said when its
	// member was scaled away: the operator deletes no volume that says Retain, or
	// nothing.
	AnnotationScaledAway = "holdfast.dev/scaled-away"
	// AnnotationDiverged on a volume says that its data held what the primary's
	// did not when its member last reported. The operator deletes no such volume.
	AnnotationDiverged = "holdfast.dev/diverged"
)

// Values of LabelRole.
const (
	// RolePrimary takes writes.
	RolePrimary = "primary"
	// RoleReplica follows closely enough to serve reads.
	RoleReplica = "replica"
	// RoleMember belongs to the cluster and serves no client yet.
	RoleMember = "member"
)
