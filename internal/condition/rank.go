package condition

import (
	"cmp"
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Group is the reasons that stand at one place in the ranking of a condition.
type Group struct {
	// Title says what the reasons have in common, as the reference page shows it.
	Title string
	// Reasons from the list in api/v1alpha1; the first one ranks highest.
	Reasons []string
}

// rankings order the reasons of each condition. Where several facts of a type are
// true, the one whose reason stands first gives the reason, whichever part of the
// operator found it, of whichever engine. The messages of the others follow in the
// same order, and those of one reason by the ordinals of their members.
//
// What endangers data comes first, then what stops serving, then lost redundancy,
// then what delays, then housekeeping.
var rankings = map[string][]Group{
	v1alpha1.ConditionStalled: {
		// A wrong step now loses data for good, and no other remedy helps before
		// this is decided. What a group says as a whole comes before what each of
		// its members says.
		{"Data needs a decision", []string{
			v1alpha1.ReasonDataCorrupt, v1alpha1.ReasonQuorumLost, v1alpha1.ReasonRecoveryRefused,
			v1alpha1.ReasonNoSafeCandidate, v1alpha1.ReasonDataMissing, v1alpha1.ReasonDataStale, v1alpha1.ReasonDataDiverged, v1alpha1.ReasonWALMissing,
		}},
		// The database runs and refuses writes: applications fail now.
		{"The database takes no writes", []string{v1alpha1.ReasonVolumeFull, v1alpha1.ReasonQuotaExceeded}},
		// A member cannot start, or an object cannot be made: redundancy is
		// missing, and nothing that is declared comes into force.
		{"A member or an object cannot be made", []string{
			v1alpha1.ReasonVersionMismatch, v1alpha1.ReasonNameConflict, v1alpha1.ReasonStorageClassMissing,
			v1alpha1.ReasonImageUnavailable, v1alpha1.ReasonForbidden, v1alpha1.ReasonInvalidObject, v1alpha1.ReasonSecretMissing,
		}},
		// The cluster has no data yet, so there is none to lose.
		{"A restore or an import cannot begin or continue", []string{
			v1alpha1.ReasonRestoreFailed, v1alpha1.ReasonBackupMissing, v1alpha1.ReasonRestoreRefused, v1alpha1.ReasonRestoring,
			v1alpha1.ReasonImportFailed, v1alpha1.ReasonImportRefused, v1alpha1.ReasonImporting,
		}},
		// What runs continues to run as it is.
		{"A field cannot be followed", []string{
			v1alpha1.ReasonDowngradeRefused, v1alpha1.ReasonMajorUpgrade, v1alpha1.ReasonUpgradePath,
			v1alpha1.ReasonInvalidParameter, v1alpha1.ReasonCertificateRefused,
			v1alpha1.ReasonStorageShrink, v1alpha1.ReasonStorageNotExpandable, v1alpha1.ReasonStorageClassChanged,
			v1alpha1.ReasonBootstrapChanged, v1alpha1.ReasonEngineChanged, v1alpha1.ReasonEngineUnsupported,
		}},
		// They are reasons of a Backup, too, and of an upgrade that waits for its
		// backup. The database is as declared otherwise.
		{"Backups cannot be made", []string{
			v1alpha1.ReasonDataLost, v1alpha1.ReasonBackupFailed, v1alpha1.ReasonBackupOverdue, v1alpha1.ReasonDestinationRemoved,
			v1alpha1.ReasonBackupNotConfigured, v1alpha1.ReasonClusterMissing, v1alpha1.ReasonSuspended, v1alpha1.ReasonWaitingForSource,
			v1alpha1.ReasonInvalidSchedule,
		}},
		// Work continues, and any other reason says more.
		{"A change takes too long", []string{v1alpha1.ReasonProgressDeadline}},
	},
	v1alpha1.ConditionDegraded: slices.Concat([]Group{
		// A volume goes with its pod, or was replaced: only a person knows whether
		// its data is still needed.
		{"Data is in danger", []string{v1alpha1.ReasonDataMissing}},
		// Applications fail now.
		{"The database does not serve, or takes no writes", []string{
			v1alpha1.ReasonRecovering, v1alpha1.ReasonQuorumLost, v1alpha1.ReasonVolumeFull, v1alpha1.ReasonQuotaExceeded,
			v1alpha1.ReasonDatabaseMissing,
		}},
		// The next failure may stop the database.
		{"Redundancy is missing", []string{
			v1alpha1.ReasonSynchronousDegraded,
			v1alpha1.ReasonMemberDown, v1alpha1.ReasonMemberUnreachable, v1alpha1.ReasonQuorumAtRisk, v1alpha1.ReasonUnknownMember,
		}},
		// The members have the data, and the copy in the store lacks some of it.
		{"The archive lacks data", []string{v1alpha1.ReasonArchiveGap, v1alpha1.ReasonArchiveFailing}},
		// Members serve until the disk space that is left is used up.
		{"Volumes cannot grow", []string{
			v1alpha1.ReasonStorageAtMaximum, v1alpha1.ReasonStorageNotExpandable, v1alpha1.ReasonStorageUnbounded, v1alpha1.ReasonSuspended,
		}},
	}, steps, lastSteps, []Group{
		// Nothing fails and nothing waits: it is said so that it is not forgotten.
		{"Members differ", []string{v1alpha1.ReasonMixedVersions}},
	}),
	v1alpha1.ConditionReconciling: slices.Concat([]Group{
		// One member continues alone, and the others join it anew: until that is done
		// there is no other step.
		{"A quorum is being recovered", []string{v1alpha1.ReasonRecovering}},
	}, steps, []Group{
		// What is broken meanwhile is Degraded by itself: it decides here only where
		// no step is under way.
		{"A member keeps the change waiting", []string{v1alpha1.ReasonMemberDown, v1alpha1.ReasonMemberUnreachable}},
	}, lastSteps, []Group{
		// Nothing is known to be left to do but to look again.
		{"Holdfast waits to observe the result", []string{v1alpha1.ReasonApplying}},
		// A Backup has one reason at a time: what is done before what is waited for.
		{"A Backup is made or removed", []string{
			v1alpha1.ReasonRemoving, v1alpha1.ReasonCopying, v1alpha1.ReasonVerifying,
			v1alpha1.ReasonWaitingForSource, v1alpha1.ReasonWaitingForTurn, v1alpha1.ReasonQueued,
		}},
	}),
	v1alpha1.ConditionAvailable: {
		// What lasts until a person acts comes before what the members repair.
		{"Only you can resolve it, as a rule", []string{
			v1alpha1.ReasonQuorumLost, v1alpha1.ReasonVolumeFull, v1alpha1.ReasonQuotaExceeded,
		}},
		{"No member takes writes", []string{v1alpha1.ReasonRestoring, v1alpha1.ReasonImporting, v1alpha1.ReasonPrimaryUnavailable, v1alpha1.ReasonNoLeader, v1alpha1.ReasonSynchronousDegraded}},
		{"The database serves", []string{v1alpha1.ReasonAvailable}},
	},
	v1alpha1.ConditionBackedUp: {
		// No backup can be made, whatever the schedule: the rest follows from it.
		{"Backups have no place", []string{
			v1alpha1.ReasonForbidden, v1alpha1.ReasonInvalidObject, v1alpha1.ReasonNameConflict,
			v1alpha1.ReasonSecretMissing, v1alpha1.ReasonStoreUnusable, v1alpha1.ReasonDestinationRemoved,
		}},
		// There is a place, and the newest data is not there.
		{"The newest backup is not good", []string{v1alpha1.ReasonBackupFailed, v1alpha1.ReasonBackupOverdue}},
		// Backups are there, and it is doubtful whether they are of use.
		{"Backups could not be restored on trial", []string{v1alpha1.ReasonDrillFailed}},
		{"Backups are as declared", []string{v1alpha1.ReasonBackedUp}},
		// A backup that is complete shows more of the store than a test that could
		// not run. Without any backup the test is all there is.
		{"Nothing is known yet", []string{v1alpha1.ReasonStoreUnchecked, v1alpha1.ReasonNoBackup}},
	},
	v1alpha1.ConditionSynced: {
		// Holdfast loses against the other side until a person stops one of them.
		{"Changes return", []string{v1alpha1.ReasonContested}},
		// The spec asks to leave them.
		{"Changes are left", []string{v1alpha1.ReasonDrifted}},
		// Of a Database, whose write of its cluster fails for a moment.
		{"Nothing is known for now", []string{v1alpha1.ReasonProgressing}},
		{"Every object is as declared", []string{v1alpha1.ReasonSynced}},
	},
	// Ready borrows most of its reasons; these are its own. See ready.
	v1alpha1.ConditionReady: {
		{"The object is being deleted", []string{v1alpha1.ReasonDeleting}},
		{"The cluster is suspended", []string{v1alpha1.ReasonSuspended}},
		{"Nothing is known yet", []string{v1alpha1.ReasonNotReady}},
		{"The object is ready", []string{v1alpha1.ReasonReady, v1alpha1.ReasonBackupCompleted}},
	},
}

// steps are those of a change, which a repair consists of as well. A change of the
// whole cluster names itself through all stages of its members; a stage that is
// under way comes before one that waits for another's end.
var steps = []Group{
	// There is nothing to serve from before they are done.
	{"The cluster is being made", []string{v1alpha1.ReasonRestoring, v1alpha1.ReasonImporting, v1alpha1.ReasonCreating}},
	// One member after the other is away.
	{"Members are being replaced", []string{v1alpha1.ReasonUpgrading, v1alpha1.ReasonRestarting}},
	// A member that copies data comes before one that has no pod yet, and the
	// member that is missing before the one that is too many.
	{"Members join or leave", []string{v1alpha1.ReasonSyncing, v1alpha1.ReasonScalingUp, v1alpha1.ReasonScalingDown}},
	// All members serve while that goes on.
	{"Volumes grow, or a backup is made first", []string{v1alpha1.ReasonResizing, v1alpha1.ReasonBackingUp}},
}

// lastSteps merely wait: the work is done, and others take it up.
var lastSteps = []Group{
	{"The last step is being taken up", []string{
		v1alpha1.ReasonUpdatingEndpoints, v1alpha1.ReasonConfiguring, v1alpha1.ReasonProgressing,
	}},
}

// places are the places of reasons in the rankings, by condition type.
var places = indexRankings(rankings)

func indexRankings(all map[string][]Group) map[string]map[string]int {
	index := map[string]map[string]int{}
	for conditionType, groups := range all {
		index[conditionType] = map[string]int{}
		for _, group := range groups {
			for _, reason := range group.Reasons {
				index[conditionType][reason] = len(index[conditionType])
			}
		}
	}
	return index
}

// Ranking lists the reasons of a condition type, the highest first; nil for a type
// that is not known. The caller must not change it.
func Ranking(conditionType string) []Group { return rankings[conditionType] }

// HasRank says whether a reason stands in the ranking of a condition type.
func HasRank(conditionType, reason string) bool {
	_, ranked := places[conditionType][reason]
	return ranked
}

// sortFacts returns facts by the rank of their reasons, and those of one reason by
// ordinal. What has no rank comes last.
func sortFacts(facts []Fact) []Fact {
	sorted := slices.Clone(facts)
	slices.SortStableFunc(sorted, func(a, b Fact) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.place(), b.place()), cmp.Compare(a.Ordinal, b.Ordinal))
	})
	return sorted
}

// place of a fact's reason in the ranking of its type.
func (f Fact) place() int {
	if place, ranked := places[f.Type][f.Reason]; ranked {
		return place
	}
	return len(places[f.Type])
}
