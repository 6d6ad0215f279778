//go:build e2e && soak

package e2e

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// longOutage of the API server is longer than any cache or token of a member.
const longOutage = 5 * time.Minute

// singleFault is one of PostgreSQL's failover.
type singleFault struct {
	name string
	run  func(*failover)
	// edits of the cluster; nil for none.
	edits func(*testing.T) func(*v1alpha1.PostgresCluster)
}

// singleFaults are those that the end-to-end tests leave out.
func singleFaults() []singleFault {
	return []singleFault{
		{"PrimaryCutOutgoing", func(f *failover) { primaryCutOneWay(f, outgoing) }, nil},
		{"PrimaryCutIncoming", func(f *failover) { primaryCutOneWay(f, incoming) }, nil},
		{"DeadConnections", deadConnections, nil},
		{"SuccessorKilled", successorKilled, nil},
		{"StatusOfFailovers", statusOfFailovers, nil},
		{"LeaseEdited", func(f *failover) { leaseEdited(f) }, nil},
		{"LeaseDeletedWhileDead", func(f *failover) { leaseDeletedWhileDead(f) }, nil},
		{"LeaseEditedAtRandom", leaseEditedAtRandom, nil},
		{"LeaseSetBack", func(f *failover) { leaseSetBack(f, false) }, nil},
		{"LeaseSetBackWhileCutOff", func(f *failover) { leaseSetBack(f, true) }, nil},
		{"LeaseDurationChanged", leaseDurationChanged, nil},
		{"AllPodsDeleted", func(f *failover) { allPodsDeleted(f) }, nil},
		{"EmptyVolume", func(f *failover) { emptyVolume(&f.trial) }, nil},
		{"EmptyVoter", emptyVoter, nil},
		{"RetainedVolume", retainedVolume, nil},
		{"VolumeDiscarded", volumeDiscarded, nil},
		{"PrimaryFull", primaryFull, onSized},
		{"CandidateFull", func(f *failover) { candidateFull(f) }, onSized},
		{"RewindFull", rewindFull, onRoomy},
		{"ReadersHoldReplay", func(f *failover) { readersHoldReplay(f) }, nil},
		{"LeaderScaledAway", func(f *failover) { leaderScaledAway(f) }, nil},
		{"SuccessorLostInScaleDown", successorLostInScaleDown, nil},
		{"RecreatedSmaller", recreatedSmaller, nil},
		{"PowerLost", func(f *failover) { powerLost(f) }, nil},
		{"FsyncBlockedBriefly", func(f *failover) { fsyncBlocked(f, 30*time.Second) }, onDisk},
		{"FsyncBlocked", func(f *failover) { fsyncBlocked(f, time.Minute) }, onDisk},
		{"APIServerAway", func(f *failover) { apiServerAway(f, longOutage) }, nil},
		{"APIServerAwayWithoutMember", func(f *failover) { apiServerAwayWithoutMember(f, longOutage) }, nil},
		{"APIServerStoppedWithoutMember", func(f *failover) { apiServerStoppedWithoutMember(f, outagePeriod) }, nil},
		{"APIServerStopped", func(f *failover) { apiServerStoppedFor(f, longOutage) }, nil},
	}
}

// TestSoakFaults are single faults of PostgreSQL's failover, each on a cluster of its
// own. Those of TestFailoverAlone and of the end-to-end test Failover are not repeated.
func TestSoakFaults(t *testing.T) {
	needLocalCluster(t)
	for _, fault := range singleFaults() {
		t.Run(fault.name, func(t *testing.T) {
			var edits []func(*v1alpha1.PostgresCluster)
			if fault.edits != nil {
				edits = append(edits, fault.edits(t))
			}
			f := newFailover(newUnwatched(t, failoverMembers, edits...))
			fault.run(f)
			f.report()
		})
	}
}

// onSized has volumes that hold no more than they say.
func onSized(*testing.T) func(*v1alpha1.PostgresCluster) {
	return func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("512Mi"), StorageClass: "sized"}
	}
}

// onDisk has volumes whose writes can be stopped.
func onDisk(t *testing.T) func(*v1alpha1.PostgresCluster) { return onDisks(t, failoverMembers) }

// TestSoakFrozen stops the processes of each role for times that are shorter and longer
// than those of the Lease. No commit of the former primary follows one of its successor.
func TestSoakFrozen(t *testing.T) {
	needLocalCluster(t)
	var measured []measurement
	for _, role := range []podprocess.Role{podprocess.Agent, podprocess.Guard, podprocess.Postmaster, podprocess.Backends, podprocess.WALReceiver, podprocess.All} {
		t.Run(string(role), func(t *testing.T) {
			f := newFailover(newUnwatched(t, failoverMembers))
			f.measured = &measured
			for _, period := range frozenPeriods {
				f.runPart(t, period.String(), func(f *failover) { frozenFor(f, role, period) })
			}
		})
	}
	t.Run("WAL receiver of a voter", func(t *testing.T) {
		f := newFailover(newUnwatched(t, failoverMembers))
		f.measured = &measured
		for _, period := range frozenPeriods[1:] { // an election takes longer than the first
			f.runPart(t, period.String(), func(f *failover) { voterFrozen(f, period) })
		}
	})
	t.Log(formatMeasurements(measured, postgresTargets))
}

// frozenPeriods are shorter and longer than the times of the Lease.
var frozenPeriods = []time.Duration{5 * time.Second, 15 * time.Second, time.Minute}

// frozenFor stops the processes of a role for a time, of the primary or, of a WAL
// receiver, of a replica. A client in the pod tries to commit meanwhile.
func frozenFor(f *failover, role podprocess.Role, period time.Duration) {
	since, pod := f.history.Now(), f.primaryPod()
	endClient := func() {}
	if role == podprocess.WALReceiver {
		pod = f.chooseReplica()
	} else {
		endClient = f.startWriterInside(pod).stop
	}
	heal := freezePod(f.t, pod, role)
	time.Sleep(period) // the fault itself
	heal()
	time.Sleep(writeTimeout) // the client goes on: a commit of a moment would be seen
	endClient()
	f.endEvent(fmt.Sprintf("%s frozen for %s", role, period), since, false)
}
