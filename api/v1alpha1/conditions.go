package v1alpha1

// Condition types. Ready, Reconciling and Stalled have the meaning that
// kstatus gives them.
const (
	// ConditionReady: the observed generation is rolled out and the database
	// serves.
	ConditionReady = "Ready"
	// ConditionReconciling: a change that was asked for is under way. Absent
	// when idle.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: only a person can go on, or there was no progress for
	// spec.progressDeadlineSeconds. Absent when fine.
	ConditionStalled = "Stalled"
	// ConditionAvailable: the read-write endpoint serves now.
	ConditionAvailable = "Available"
	// ConditionSynced: every owned object is as declared.
	ConditionSynced = "Synced"
	// ConditionDegraded: serving, with something broken. Absent when fine.
	ConditionDegraded = "Degraded"
	// ConditionBackedUp: the newest backup by schedule is good. Unknown until the
	// first backup has ended or the first slot of the schedule has passed; absent
	// where backups are turned off.
	ConditionBackedUp = "BackedUp"
)

// Reasons of conditions and events: the whole list.
const (
	ReasonReady              = "Ready"
	ReasonNotReady           = "NotReady"
	ReasonProgressing        = "Progressing"
	ReasonAvailable          = "Available"
	ReasonPrimaryUnavailable = "PrimaryUnavailable"
	ReasonNoLeader           = "NoLeader"
	ReasonSynced             = "Synced"
	ReasonDrifted            = "Drifted"
	ReasonContested          = "Contested"
	ReasonSuspended          = "Suspended"
	ReasonDeleting           = "Deleting"

	// Steps of a change under way; also reasons of Reconciling.
	ReasonCreating          = "Creating"
	ReasonScalingUp         = "ScalingUp"
	ReasonSyncing           = "Syncing"
	ReasonUpdatingEndpoints = "UpdatingEndpoints"
	ReasonScalingDown       = "ScalingDown"
	ReasonUpgrading         = "Upgrading"
	ReasonRestarting        = "Restarting"
	ReasonConfiguring       = "Configuring"
	ReasonResizing          = "Resizing"
	ReasonRecovering        = "RecoveringQuorum"
	ReasonApplying          = "Applying"

	// Reasons of Stalled, which need a person.
	ReasonNameConflict         = "NameConflict"
	ReasonImageUnavailable     = "ImageUnavailable"
	ReasonInvalidParameter     = "InvalidParameter"
	ReasonInvalidSchedule      = "InvalidSchedule"
	ReasonInvalidObject        = "InvalidObject"
	ReasonDowngradeRefused     = "DowngradeRefused"
	ReasonMajorUpgrade         = "MajorUpgradeUnsupported"
	ReasonUpgradePath          = "UpgradePathRefused"
	ReasonQuorumLost           = "QuorumLost"
	ReasonRecoveryRefused      = "RecoveryRefused"
	ReasonDataCorrupt          = "DataCorrupt"
	ReasonQuotaExceeded        = "QuotaExceeded"
	ReasonStorageShrink        = "StorageShrinkRefused"
	ReasonStorageClassMissing  = "StorageClassMissing"
	ReasonStorageClassChanged  = "StorageClassChanged"
	ReasonStorageNotExpandable = "StorageNotExpandable"
	ReasonVersionMismatch      = "DataVersionMismatch"
	ReasonDataMissing          = "DataMissing"
	ReasonVolumeFull           = "VolumeFull"
	ReasonBootstrapChanged     = "BootstrapChanged"
	ReasonDataStale            = "DataStale"
	ReasonDataDiverged         = "DataDiverged"
	ReasonNoSafeCandidate      = "NoSafeCandidate"
	ReasonWALMissing           = "WALMissing"
	ReasonProgressDeadline     = "ProgressDeadlineExceeded"
	ReasonForbidden            = "Forbidden"
	ReasonSecretMissing        = "SecretMissing"
	ReasonCertificateRefused   = "CertificateRefused"
	ReasonEngineChanged        = "EngineChanged"
	ReasonEngineUnsupported    = "EngineUnsupported"

	// What is broken while serving goes on; reasons of Degraded.
	ReasonMemberDown        = "MemberDown"
	ReasonMemberUnreachable = "MemberUnreachable"
	ReasonDatabaseMissing   = "DatabaseMissing"
	ReasonUnknownMember     = "UnknownMember"
	ReasonQuorumAtRisk      = "QuorumAtRisk"
	ReasonMixedVersions     = "MixedVersions"
	ReasonStorageAtMaximum  = "StorageAtMaximum"
	ReasonStorageUnbounded  = "StorageUnbounded"
	ReasonArchiveFailing    = "ArchiveFailing"
	ReasonArchiveGap        = "ArchiveGap"
	// ReasonSynchronousDegraded: fewer standbys acknowledge commits than
	// spec.synchronous declares. Also of Available, while commits wait for them.
	ReasonSynchronousDegraded = "SynchronousReplicationDegraded"

	// Of backups.
	ReasonBackedUp            = "BackedUp"
	ReasonNoBackup            = "NoBackup"
	ReasonBackupFailed        = "BackupFailed"
	ReasonBackupCompleted     = "BackupCompleted"
	ReasonBackupNotConfigured = "BackupNotConfigured"
	ReasonClusterMissing      = "ClusterMissing"
	ReasonWaitingForSource    = "WaitingForSource"
	ReasonWaitingForTurn      = "WaitingForTurn"
	ReasonQueued              = "Queued"
	ReasonCopying             = "Copying"
	ReasonVerifying           = "Verifying"
	ReasonRemoving            = "Removing"
	ReasonDataRetained        = "DataRetained"
	ReasonBackupRetired       = "BackupRetired"
	ReasonBackupOverdue       = "BackupOverdue"
	ReasonBackingUp           = "BackingUp"
	ReasonStoreUnusable       = "StoreUnusable"
	ReasonStoreUnchecked      = "StoreUnchecked"
	ReasonBackupSkipped       = "BackupSkipped"
	ReasonDataLost            = "DataLost"
	ReasonDestinationRemoved  = "DestinationRemoved"

	// Of restore drills.
	ReasonDrillStarted = "DrillStarted"
	ReasonDrillPassed  = "DrillPassed"
	ReasonDrillFailed  = "DrillFailed"
	ReasonDrillSkipped = "DrillSkipped"

	// Of restores.
	ReasonRestoring      = "Restoring"
	ReasonRestored       = "Restored"
	ReasonRestoreFailed  = "RestoreFailed"
	ReasonRestoreRefused = "RestoreRefused"
	ReasonBackupMissing  = "BackupMissing"

	// Of imports.
	ReasonImporting     = "Importing"
	ReasonImported      = "Imported"
	ReasonImportFailed  = "ImportFailed"
	ReasonImportRefused = "ImportRefused"

	// Events beside the above.
	ReasonDriftReverted    = "DriftReverted"
	ReasonDriftReported    = "DriftReported"
	ReasonStepStarted      = "StepStarted"
	ReasonStepFailed       = "StepFailed"
	ReasonMemberState      = "MemberState"
	ReasonPrimaryChanged   = "PrimaryChanged"
	ReasonFenced           = "Fenced"
	ReasonRejoined         = "Rejoined"
	ReasonMemberHeld       = "MemberHeld"
	ReasonAgentsOutdated   = "AgentsOutdated"
	ReasonMemberUnusual    = "MemberUnusual"
	ReasonVolumeGrows      = "VolumeGrows"
	ReasonVolumeKept       = "VolumeKept"
	ReasonRequestAccepted  = "RequestAccepted"
	ReasonRequestCompleted = "RequestCompleted"

	// Events of spec.tuning.mode Apply.
	ReasonTuningTried       = "TuningTried"
	ReasonTuningKept        = "TuningKept"
	ReasonTuningReleased    = "TuningReleased"
	ReasonTuningRolledBack  = "TuningRolledBack"
	ReasonTuningQuarantined = "TuningQuarantined"
)
