package leaderview

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// findLimit is how long the leader has to say what it is.
const findLimit = time.Second

// ErrNoLeader says that the Lease names no leader, as far as this member knows.
var ErrNoLeader = errors.New("no member holds the Lease, as far as this one knows")

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

// Options are what a View is made of.
type Options struct {
	// Pod of this member.
	Pod   string
	Peers Peers
	// Leader is the one by the Lease, as the election knows it, and Address the IP
	// address that the Lease gives of its pod; empty where it gives none.
	Leader  func() elector.Leader
	Address func(elector.Leader) string
}

// View is what a member knows of the member that leads. It may be used by several
// goroutines.
type View struct {
	o Options

	mu sync.Mutex
	// last is the pod that led last, for messages.
	last string
}

// NewView is that of a member that knows nothing yet.
func NewView(o Options) *View { return &View{o: o} }

// FindLeader is the leader by the Lease; false while none is known, and on the leader
// itself.
func (v *View) FindLeader() (elector.Leader, bool) {
	leader := v.o.Leader()
	if leader.UID == "" || leader.Pod == "" || leader.Pod == v.o.Pod {
		return elector.Leader{}, false
	}
	if address := v.o.Address(leader); address != "" {
		v.o.Peers.Locate(leader.Pod, address)
	}
	v.mu.Lock()
	v.last = leader.Pod
	v.mu.Unlock()
	return leader, true
}

// FindPrimary asks the leader whether it is the primary, and returns what it reports.
func (v *View) FindPrimary(ctx context.Context) (agentapi.Status, bool) {
	ctx, cancel := context.WithTimeout(ctx, findLimit)
	defer cancel()
	status, err := v.AskPrimary(ctx)
	if err != nil || status.Role != v1alpha1.RolePrimary || !status.Serving {
		return agentapi.Status{}, false
	}
	return status, true
}

// AskPrimary asks the leader for its status, as of now. The deadline is the context's.
// An answer of another pod of that name is an error.
func (v *View) AskPrimary(ctx context.Context) (agentapi.Status, error) {
	leader, known := v.FindLeader()
	if !known {
		return agentapi.Status{}, ErrNoLeader
	}
	status, err := v.o.Peers.Status(ctx, leader.Pod)
	if err == nil && status.PodUID != leader.UID {
		err = errors.New("another pod answers by the name of " + leader.Pod)
	}
	return status, err
}

// PrimaryPod is the pod that leads, or that led last; for messages.
func (v *View) PrimaryPod() string {
	if leader, known := v.FindLeader(); known {
		return leader.Pod
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == "" {
		return "the primary"
	}
	return v.last
}
