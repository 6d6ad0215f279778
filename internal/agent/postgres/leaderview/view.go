package leaderview

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// findLimit is how long the members have to say which of them is the primary.
const findLimit = time.Second

// Peers are the other members, which say what they are, and can be said to be at
// an address.
type Peers interface {
	Status(ctx context.Context, pod string) (agentapi.Status, error)
	Locate(pod, ip string)
}

// Primary is what a member that says that it is the primary says of itself.
type Primary struct {
	// Known says that there is one; all else is zero without it.
	Known bool
	// Pod by name, and the identifier of its database system.
	Pod, SystemIdentifier string
	// End is how far its WAL goes; see ReadEnd.
	End lsn.Point
	// DataSize is what a copy of its data takes, in bytes; 0 while it does not say.
	DataSize int64
}

// ReadPrimary reads a primary's status for a member with data of a database system.
func ReadPrimary(s agentapi.Status, known bool, systemIdentifier string) Primary {
	return Primary{Known: known, Pod: s.Pod, SystemIdentifier: s.SystemIdentifier, End: ReadEnd(s, systemIdentifier), DataSize: s.DataSize}
}

// ReadEnd is where the WAL of a primary ends. Of another database system, or by
// an old answer, nothing is known: it would pass for data that is stale.
func ReadEnd(s agentapi.Status, systemIdentifier string) lsn.Point {
	own := agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&s)
	if own.PositionOld || s.SystemIdentifier != systemIdentifier {
		return lsn.Point{Timeline: own.Timeline}
	}
	return lsn.Point{Timeline: own.Timeline, Position: s.Position}
}

// View is what a member knows of the member that leads. It may be used by several
// goroutines.
type View struct {
	identity identity.Identity
	members  func() []string
	peers    Peers
	// moved holds one when the primary is to be looked for elsewhere.
	moved chan struct{}

	mu sync.Mutex
	// primary is the member that last said that it is the primary.
	primary  agentapi.Status
	location location
}

// NewView is that of a member that knows nothing yet. The members are the pods of
// the cluster, as configured.
func NewView(own identity.Identity, members func() []string, peers Peers) *View {
	return &View{identity: own, members: members, peers: peers, moved: make(chan struct{}, 1)}
}

// FindPrimary asks all other members at once which of them is the primary.
func (v *View) FindPrimary(ctx context.Context) (agentapi.Status, bool) {
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	var asked sync.WaitGroup
	found := make(chan agentapi.Status, len(v.members()))
	for _, pod := range v.members() {
		if pod == v.identity.Pod {
			continue
		}
		asked.Go(func() {
			status, err := v.peers.Status(ctx, pod)
			if err == nil && status.Role == v1alpha1.RolePrimary && status.Serving {
				found <- status
				cancel()
			}
		})
	}
	asked.Wait()
	select {
	case status := <-found:
		v.mu.Lock()
		v.primary = status
		v.mu.Unlock()
		return status, true
	default:
		return agentapi.Status{}, false
	}
}

// PrimaryPod is the pod that this member follows: the one that last said that it is
// the primary, or the first member.
func (v *View) PrimaryPod() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.primary.Pod != "" {
		return v.primary.Pod
	}
	name, _, _ := strings.Cut(v.identity.Pod, v.identity.Cluster)
	return name + v.identity.Cluster + "-0"
}

// AskPrimary asks the pod of PrimaryPod for its status, as of now. The deadline is
// the context's.
func (v *View) AskPrimary(ctx context.Context) (agentapi.Status, error) {
	return v.peers.Status(ctx, v.PrimaryPod())
}

// PrimaryAddress is where the settings look for the primary; mostly empty, for
// the Lease is only asked when the primary does not answer.
func (v *View) PrimaryAddress() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.location.inForce
}

// LeaseAddress is where the Lease says that the primary is; empty where it does not.
func (v *View) LeaseAddress() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.location.found
}

// RecordLease takes in where the Lease says that the primary is.
func (v *View) RecordLease(record leaseclient.Record) {
	if record.HolderPod != v.PrimaryPod() {
		return
	}
	v.peers.Locate(record.HolderPod, record.Address)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.location.recordLease(record.HolderUID, record.Address)
}

// RecordAnswer takes in an answer of the primary.
func (v *View) RecordAnswer(status agentapi.Status) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.location.recordAnswer(status.PodUID)
}

// RecordStream takes in whether a stream is at work, and reports on Moved where the
// primary is to be looked for elsewhere.
func (v *View) RecordStream(works bool) {
	v.mu.Lock()
	v.location.recordStream(works)
	_, due := v.location.nextAddress()
	v.mu.Unlock()
	if !due {
		return
	}
	select {
	case v.moved <- struct{}{}:
	default:
	}
}

// Moved yields when the primary is to be looked for at another address; see
// NextAddress.
func (v *View) Moved() <-chan struct{} { return v.moved }

// BeginRun is the start of a server: nothing streams, and all that is known goes
// into its settings.
func (v *View) BeginRun() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.location.beginRun()
}

// NextAddress is the address that the settings are to look at, empty for the pod's
// name, if another than PrimaryAddress is to be taken up.
func (v *View) NextAddress() (address string, due bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.location.nextAddress()
}

// RecordAddress takes in that the settings look at an address now.
func (v *View) RecordAddress(address string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.location.inForce = address
}
