package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// writeLog makes a data directory with the Raft log of a member.
func writeLog(t *testing.T, data string, s raftLogState) {
	t.Helper()
	dir := filepath.Join(data, "member", "wal")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var log []byte
	numbers := func(kind uint64, fields ...uint64) {
		var body []byte
		for i, value := range fields {
			body = protowire.AppendTag(body, protowire.Number(i+1), protowire.VarintType)
			body = protowire.AppendVarint(body, value)
		}
		log = append(log, record(kind, body)...)
	}
	id, _ := parseID(s.Member)
	cluster, _ := parseID(s.Cluster)
	numbers(recordMetadata, id, cluster)
	numbers(recordState, 2, 0, s.Commit)
	if err := os.WriteFile(filepath.Join(dir, "0000000000000000-0000000000000000.wal"), append(log, make([]byte, 64)...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// group is the membership that the simulated etcd keeps.
type group struct {
	peer, name   string
	voter, ended bool
	// starts are the emptied volumes that the member was started on.
	starts []string
}

// lab is a cluster of agents whose steps interleave, over volumes that come
// and go. Only etcd and the operator are simulated: gates, volumes and marks
// are real.
type lab struct {
	t       *testing.T
	r       *rand.Rand
	record  leaseclient.MembershipRecord
	version int
	group   map[string]*group
	order   []string
	served  map[string]bool // clusters that served anybody
	system  string          // as the operator has it in the status
	agents  []*actor
	next    uint64
	trace   []string
	joins   int
}

// actor is one agent with its volume; two of them may have one name.
type actor struct {
	lab     *lab
	pod     string
	gate    *startGuard
	dir     string
	epoch   int // counts how often the volume was emptied
	config  *agent.Config
	read    int // version of the record that was read last
	reports string
	lost    string
	pending func()
}

func (a *actor) ReadRecord(context.Context) (leaseclient.MembershipRecord, error) {
	if a.lab.r.IntN(10) == 0 {
		return leaseclient.MembershipRecord{}, errors.New("the API server is away")
	}
	a.read = a.lab.version
	return a.lab.record, nil
}

func (a *actor) WriteRecord(_ context.Context, next leaseclient.MembershipRecord) error {
	switch {
	case a.read != a.lab.version:
		return errors.New("conflict")
	case a.lab.r.IntN(10) == 0:
		return errors.New("the API server is away")
	}
	a.lab.version++
	a.read = a.lab.version
	a.lab.record = next
	if a.lab.r.IntN(10) == 0 {
		return errors.New("the answer was lost")
	}
	return nil
}

func (l *lab) note(format string, args ...any) {
	l.trace = append(l.trace, fmt.Sprintf(format, args...))
}

// boot starts an agent anew: what it had in memory is gone.
func (a *actor) boot() {
	a.pending, a.reports, a.lost = nil, "", ""
	a.gate = &startGuard{
		pod: a.pod, dir: a.dir, log: slog.New(slog.DiscardHandler), membership: a,
		config: func() *agent.Config { return a.config }, space: func() diskspace.Space { return diskspace.Space{} },
		confirm: func(_ context.Context, t etcdapi.JoinGrant, data raftLogState) confirmation {
			m := a.lab.group[t.MemberID]
			switch {
			case a.lab.r.IntN(8) == 0:
				return confirmNone
			case m == nil || m.ended || m.peer != a.pod || data.Member != "" && a.lab.counts(data.Member):
				return confirmNo
			}
			return confirmYes
		},
	}
}

func (l *lab) counts(id string) bool { return l.group[id] != nil && !l.group[id].ended }

func (l *lab) admit(peer, name string, voter bool, id string) {
	l.group[id] = &group{peer: peer, name: name, voter: voter}
	l.order = append(l.order, id)
}

// operator computes the configuration from what it sees now.
func (l *lab) operator() *agent.Config {
	c := &agent.Config{}
	c.UID, c.SystemIdentifier, c.JoinGrants = "u", l.system, map[string]etcdapi.JoinGrant{}
	if l.system == "" && len(l.group) == 0 {
		c.JoinGrants["orders-0"] = *seeding()
	}
	for _, id := range l.order {
		if m := l.group[id]; !m.ended && m.name == "" {
			c.JoinGrants[m.peer] = *joining(id)
		}
	}
	return c
}

// act lets the operator change the membership, at times against all reason.
func (l *lab) act() {
	if len(l.group) == 0 {
		return
	}
	pod := fmt.Sprintf("orders-%d", l.r.IntN(3))
	for _, id := range l.order {
		m := l.group[id]
		if m.ended || m.peer != pod {
			continue
		}
		for _, a := range l.agents {
			if a.pod != pod {
				continue
			}
			if a.reports == id && !m.voter {
				m.voter = true
				l.note("promote %s", id)
				return
			}
			if a.lost == id || l.r.IntN(20) == 0 {
				m.ended = true
				l.note("remove %s", id)
				return
			}
		}
		return
	}
	l.next++
	id := formatID(l.next)
	l.admit(pod, "", false, id)
	l.note("admit %s as %s", pod, id)
}

// step takes the next step of an agent, or the second half of the last one.
func (a *actor) step() {
	if a.pending != nil {
		do := a.pending
		a.pending = nil
		do()
		return
	}
	if id, err := a.gate.settleMember(context.Background()); err == nil && id != "" {
		a.reports = id
		a.lab.settled(a)
	}
	d, f, err := a.gate.planNext(context.Background())
	if err != nil {
		a.lab.t.Fatal(err)
	}
	a.lost = d.Lost
	a.pending = func() {
		if done, err := a.gate.carryOut(context.Background(), d, f); done {
			a.lab.note("%s@%s: %s %v", a.pod, a.volume(), d.Message, err)
			return
		}
		a.etcd(d, f)
	}
}

// settled: the operator hears of a cluster when its member is recorded.
func (l *lab) settled(a *actor) {
	if v, err := inspectVolume(a.dir); err == nil && l.system == "" {
		l.system = v.RaftLog.Cluster
	}
}

func (a *actor) volume() string { return fmt.Sprintf("%s.%d", filepath.Base(a.dir), a.epoch) }

// etcd does what etcd would.
func (a *actor) etcd(d plan, f observation) {
	l := a.lab
	data := filepath.Join(a.dir, dataName)
	switch d.Action {
	case actBootstrap:
		if err := os.MkdirAll(filepath.Join(a.dir, bootstrapName), 0o700); err != nil {
			l.t.Fatal(err)
		}
		if l.r.IntN(4) == 0 {
			return // crashed in the middle
		}
		l.next += 2
		writeLog(l.t, filepath.Join(a.dir, bootstrapName), raftLogState{Member: formatID(l.next), Cluster: formatID(l.next + 1), Commit: 4})
		if err := atomicfile.Move(filepath.Join(a.dir, bootstrapName), data); err != nil {
			l.t.Fatal(err)
		}
		l.note("%s@%s: bootstrapped %s of %s", a.pod, a.volume(), formatID(l.next), formatID(l.next+1))
		l.next++
	case actJoin:
		if err := markBegun(a.dir, f.JoinGrant.MemberID); err != nil {
			l.t.Fatal(err)
		}
		a.join(data)
	case actStart:
		log := f.Volume.RaftLog
		l.served[log.Cluster] = true
		if len(l.group) == 0 {
			l.admit(a.pod, a.pod, true, log.Member)
		}
		if m := l.group[log.Member]; m != nil && m.ended {
			a.gate.removed = log.Member
		} else if m != nil && l.r.IntN(2) == 0 {
			m.name = m.peer // published
		}
	}
}

// join takes the member that the group counts at this address now, whatever
// the join grant said.
func (a *actor) join(data string) {
	l := a.lab
	for _, id := range l.order {
		m := l.group[id]
		if m.ended || m.peer != a.pod || m.name != "" {
			continue
		}
		if err := a.gate.clearStart(); err != nil {
			l.t.Fatal(err)
		}
		if l.r.IntN(6) == 0 {
			_ = os.MkdirAll(filepath.Join(data, "member", "snap"), 0o700)
			if l.r.IntN(2) == 0 {
				_ = markBegun(a.dir, "") // the agent saw etcd end without a log
			}
			return
		}
		l.joins++
		m.starts = append(m.starts, a.volume())
		writeLog(l.t, data, raftLogState{Member: id, Cluster: l.system, Commit: 9})
		l.note("%s@%s: joined as %s", a.pod, a.volume(), id)
		return
	}
}

// accident happens to a volume or a process.
func (l *lab) accident() {
	i := l.r.IntN(len(l.agents))
	a := l.agents[i]
	switch l.r.IntN(6) {
	case 0: // the volume is emptied
		l.note("%s@%s: emptied", a.pod, a.volume())
		a.clear("*")
		a.epoch++
	case 1: // the data alone goes
		l.note("%s@%s: data deleted", a.pod, a.volume())
		a.clear(dataName)
		a.epoch++
	case 2: // another pod of the name, on another volume
		b := &actor{lab: l, pod: a.pod, dir: l.t.TempDir(), config: l.operator()}
		l.note("%s@%s: beside %s", b.pod, b.volume(), a.volume())
		b.boot()
		if len(l.agents) < 6 {
			l.agents = append(l.agents, b)
		} else {
			l.agents[i] = b
		}
		return
	}
	a.boot()
}

func (a *actor) clear(pattern string) {
	names, _ := filepath.Glob(filepath.Join(a.dir, pattern))
	for _, name := range names {
		_ = os.RemoveAll(name)
	}
}

// check finds what must never be.
func (l *lab) check() {
	for id, m := range l.group {
		if len(m.starts) > 1 && m.voter {
			l.t.Fatalf("%s has a vote and was started on %v:\n%s", id, m.starts, strings.Join(l.trace, "\n"))
		}
	}
	if len(l.served) > 1 {
		l.t.Fatalf("served clusters %v:\n%s", l.served, strings.Join(l.trace, "\n"))
	}
}

// Whatever crashes, empties, goes stale or doubles, no member with a vote was
// ever started on two empty volumes, and no second cluster serves anybody.
func TestSimulate(t *testing.T) {
	runs, joins, doubles, promoted := 40, 0, 0, 0
	if testing.Short() {
		runs = 5
	}
	for seed := range runs {
		l := &lab{t: t, r: rand.New(rand.NewPCG(uint64(seed), 1)), group: map[string]*group{}, served: map[string]bool{}}
		for i := range 3 {
			a := &actor{lab: l, pod: fmt.Sprintf("orders-%d", i), dir: t.TempDir()}
			a.boot()
			l.agents = append(l.agents, a)
		}
		for range 500 {
			a := l.agents[l.r.IntN(len(l.agents))]
			switch n := l.r.IntN(100); {
			case n < 3:
				l.accident()
			case n < 8:
				l.act()
			case n < 20:
				a.config = l.operator()
			default:
				a.step()
			}
			l.check()
		}
		joins += l.joins
		for _, m := range l.group {
			doubles += max(0, len(m.starts)-1)
			if m.voter {
				promoted++
			}
		}
	}
	t.Logf("%d runs: %d joins, %d members with a vote, %d learners started twice", runs, joins, promoted, doubles)
	if joins < runs || promoted < runs {
		t.Error("the simulation hardly ever gets anywhere")
	}
}
