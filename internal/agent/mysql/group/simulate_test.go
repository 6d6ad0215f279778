package group

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

const simulatedGroup = "5b8f3c1e-0000-5000-8000-000000000001"

// run is one group that some members form: the model of Group Replication. Whatever is
// acknowledged is on the primary's disk, and in the memory of all members that can be
// reached, which are a majority.
type run struct {
	id      int
	members []int // the view
	online  map[int]bool
	primary int
}

// simMember is one member with its server and its agent.
type simMember struct {
	pod     int
	disk    int64 // transactions 1 to disk are on it
	memory  int64
	reached bool // by the others
	up      bool // the server runs
	hung    bool // its agent does nothing
	run     *run // nil while it is in no group

	persisted Record
	agent     simAgent
}

// simAgent is what an agent remembers between its steps.
type simAgent struct {
	stage    int
	read     Record // from the Lease
	record   Record // with what the volume has of a newer one
	version  int
	known    bool
	peers    []Report
	claimed  int64
	starting bool
	earlier  View   // the primary's, from before it read the record
	settling Record // the primary's, once its view is newer
}

// world is a cluster of simulated members.
type world struct {
	random  *rand.Rand
	members []*simMember
	record  Record
	version int
	// earlier are the records before, to which the Lease may be set back.
	earlier  []Record
	setsBack bool
	api      bool
	runs     []*run
	acked    int64
	// faults in a thousand steps.
	faults int
	// mutant breaks a rule, to show that the simulation finds it.
	mutant string
	broken string
	events []string
}

func uuidOf(pod int) string { return fmt.Sprintf("%08d-0000-1000-8000-000000000000", pod) }

func newWorld(seed uint64, count int, mutant string) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 7)), api: true, version: 1, mutant: mutant}
	w.faults = []int{20, 60, 250}[w.random.IntN(3)]
	for pod := range count {
		w.members = append(w.members, &simMember{pod: pod, up: true, reached: true})
	}
	// The first member was bootstrapped and recorded; the others were cloned, and have
	// not joined yet.
	w.record = Record{Group: simulatedGroup}.WithJoining(uuidOf(0), "0")
	w.members[0].persisted = w.record
	return w
}

func (w *world) note(format string, args ...any) {
	w.events = append(w.events, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// reach says whether two members reach each other.
func (w *world) reach(a, b int) bool {
	return a == b || w.members[a].reached && w.members[b].reached
}

// connected are the members of a run that a member reaches and that still are in it.
func (w *world) connected(r *run, from int) []int {
	var list []int
	for _, pod := range r.members {
		if m := w.members[pod]; m.up && m.run == r && w.reach(from, pod) {
			list = append(list, pod)
		}
	}
	return list
}

func (w *world) hasMajority(r *run, from int) bool {
	return 2*len(w.connected(r, from)) > len(r.members)
}

// commit has the primary of a run acknowledge a write, if it can.
func (w *world) commit(r *run) {
	primary := w.members[r.primary]
	if !primary.up || primary.run != r || !w.hasMajority(r, r.primary) {
		return
	}
	if primary.memory < w.acked {
		w.fail("%d of run %d leads with %d transactions, and %d were acknowledged", r.primary, r.id, primary.memory, w.acked)
	}
	w.acked = primary.memory + 1
	for _, pod := range w.connected(r, r.primary) {
		w.members[pod].memory = w.acked
	}
	primary.disk = w.acked
}

// expel removes the members that a majority does not reach, and elects a primary.
func (w *world) expel(r *run) {
	for _, from := range r.members {
		m := w.members[from]
		if !m.up || m.run != r || !w.hasMajority(r, from) {
			continue
		}
		r.members = w.connected(r, from)
		if !slices.Contains(r.members, r.primary) {
			for _, pod := range r.members {
				if r.online[pod] {
					r.primary = pod
				}
			}
			// One that was still recovering cannot lead: the group has none left.
			if !slices.Contains(r.members, r.primary) {
				for _, pod := range r.members {
					w.members[pod].run = nil
				}
				r.members = nil
			}
		}
		return
	}
}

// loseMajority has a member without one leave, as its agent restarts the server.
func (w *world) loseMajority(m *simMember) {
	if m.up && m.run != nil && (!slices.Contains(m.run.members, m.pod) || !w.hasMajority(m.run, m.pod)) {
		m.run, m.memory = nil, m.disk
		m.agent = simAgent{}
	}
}

func held(n int64) mysqlgtid.Set {
	if n == 0 {
		return mysqlgtid.Set{}
	}
	s, err := mysqlgtid.Parse(simulatedGroup + ":1-" + strconv.FormatInt(n, 10))
	if err != nil {
		panic(err)
	}
	return s
}

func (w *world) report(m *simMember) Report {
	r := Report{Pod: strconv.Itoa(m.pod), Ordinal: m.pod, UUID: uuidOf(m.pod), Group: simulatedGroup, Phase: Detached,
		Executed: held(m.disk), Received: held(m.memory)}.WithKnown(m.persisted)
	if slices.Contains([]string{"starts alone", "writes over", "settles by an older view"}, w.mutant) {
		r.Persisted = nil
		for pod := range w.members {
			r.Persisted = append(r.Persisted, uuidOf(pod))
		}
	}
	switch {
	case !m.up:
		r.Phase = Down
	case m.run != nil:
		r.Phase, r.View = InGroup, w.view(m)
	case m.agent.starting:
		r.Phase = Starting
	}
	return r
}

func (w *world) view(m *simMember) View {
	v := View{ID: strconv.Itoa(m.run.id)}
	reached := w.connected(m.run, m.pod)
	for _, pod := range m.run.members {
		state := Unreachable
		if slices.Contains(reached, pod) {
			state = Recovering
			if m.run.online[pod] {
				state = Online
			}
		}
		v.Members = append(v.Members, Member{UUID: uuidOf(pod), State: state, Primary: pod == m.run.primary})
	}
	return v
}

// writeRecord replaces the record if it is the one that was read.
func (w *world) writeRecord(a *simAgent, next Record) bool {
	if !w.api || w.version != a.version && w.mutant != "writes over" {
		return false
	}
	w.earlier = append(w.earlier, w.record)
	w.record, w.version = next.Next(), w.version+1
	return true
}

// readRecord reads the record, and keeps it on the member's volume.
func (w *world) readRecord(m *simMember) {
	a := &m.agent
	a.read, a.version = w.record, w.version
	if a.record = w.record.WithNewer(m.persisted); w.mutant == "forgets for an older record" {
		a.record = w.record
	}
	m.persisted = a.record
}

// stepAgent does one step of an agent: any other thing may happen between two.
func (w *world) stepAgent(m *simMember) {
	a := &m.agent
	if !m.up {
		m.agent = simAgent{}
		return
	}
	if m.run != nil {
		w.stepPrimary(m)
		return
	}
	switch {
	case a.stage == 0:
		a.known = w.api
		if w.api {
			w.readRecord(m)
		}
		a.peers, a.stage = nil, 1
	case a.stage <= len(w.members):
		peer := a.stage - 1
		if peer != m.pod && w.reach(m.pod, peer) {
			a.peers = append(a.peers, w.report(w.members[peer]))
		}
		a.stage++
	default:
		a.stage = 0
		w.act(m)
	}
}

func (w *world) act(m *simMember) {
	a := &m.agent
	self := w.report(m)
	self.Phase = Detached
	if w.mutant == "takes no newer record from others" {
		for i := range a.peers {
			a.peers[i].Revision = 0
		}
	}
	if w.mutant == "a majority starts" {
		a.record = w.dropMissing(a)
	}
	p := PlanStart(Situation{Self: self, Peers: a.peers, Record: a.record, RecordKnown: a.known, Persisted: m.persisted, Claimed: a.claimed})
	w.note("%d plans %d: %s", m.pod, p.Action, p.Reason)
	if p.Action != ClaimBoot && p.Action != StartGroup {
		a.starting = false
	}
	switch p.Action {
	case RecordJoining:
		w.writeRecord(a, p.Record)
		if w.mutant == "joins unrecorded" {
			w.join(m, w.runOf(a.peers))
		}
	case ClaimBoot:
		// It reports that it starts, and then looks at the others again.
		if !a.starting {
			a.starting = true
			return
		}
		if w.writeRecord(a, p.Record) {
			a.claimed = p.Record.Boot.Term
		}
	case StartGroup:
		w.startGroup(m)
	case Join:
		peer, _ := strconv.Atoi(p.Peer)
		w.join(m, w.members[peer].run)
	}
}

// dropMissing leaves out of the record who did not answer, if most did.
func (w *world) dropMissing(a *simAgent) Record {
	if 2*(len(a.peers)+1) <= len(w.members) {
		return a.record
	}
	r := a.record
	r.Entries = slices.DeleteFunc(slices.Clone(r.Entries), func(e Entry) bool {
		return e.UUID != uuidOf(w.podOf(a)) && !slices.ContainsFunc(a.peers, func(p Report) bool { return p.UUID == e.UUID && p.Phase == Detached })
	})
	return r
}

func (w *world) podOf(a *simAgent) int {
	return slices.IndexFunc(w.members, func(m *simMember) bool { return &m.agent == a })
}

// runOf is the run of a peer that answered.
func (w *world) runOf(peers []Report) *run {
	for _, p := range peers {
		if p.leads() {
			return w.members[p.Ordinal].run
		}
	}
	return nil
}

func (w *world) startGroup(m *simMember) {
	for _, other := range w.runs {
		for _, pod := range other.members {
			if o := w.members[pod]; o.run == other && o.up && w.hasMajority(other, pod) {
				w.fail("%d starts a group, and %d is in one", m.pod, pod)
			}
		}
	}
	if m.disk < w.acked {
		w.fail("%d starts a group with %d transactions, and %d were acknowledged", m.pod, m.disk, w.acked)
	}
	r := &run{id: len(w.runs) + 1, members: []int{m.pod}, online: map[int]bool{m.pod: true}, primary: m.pod}
	w.runs = append(w.runs, r)
	w.note("%d starts run %d with %d", m.pod, r.id, m.disk)
	m.run, m.memory = r, m.disk
	m.agent = simAgent{}
}

func (w *world) join(m *simMember, r *run) {
	if r == nil || slices.Contains(r.members, m.pod) {
		return
	}
	for _, pod := range r.members {
		if o := w.members[pod]; o.up && o.run == r && w.reach(m.pod, pod) && w.hasMajority(r, pod) {
			r.members = append(slices.Clone(r.members), m.pod)
			r.online[m.pod] = false
			m.run, m.memory = r, w.members[pod].memory
			m.agent = simAgent{}
			w.note("%d joins run %d", m.pod, r.id)
			return
		}
	}
}

// stepPrimary keeps the record, in three steps.
func (w *world) stepPrimary(m *simMember) {
	a, r := &m.agent, m.run
	if r.primary != m.pod {
		m.agent = simAgent{}
		return
	}
	switch a.stage {
	case 0:
		a.earlier, a.stage = w.view(m), 1
	case 1:
		if w.api {
			w.readRecord(m)
			a.stage = 2
		}
	case 2:
		// The barrier: the group agrees, and the view is newer than the record.
		if !w.hasMajority(r, m.pod) {
			a.stage = 0
			return
		}
		a.stage = 3
		a.settling = w.settle(a.record, w.view(m), a.earlier)
	default:
		a.stage = 0
		if !a.settling.IsEqual(a.read) && w.writeRecord(a, a.settling) {
			w.note("%d settles the record: %v", m.pod, a.settling.Entries)
			m.persisted = a.settling.Next()
		}
	}
}

// settle is Record.Settle, or what a broken rule makes of it.
func (w *world) settle(r Record, now, earlier View) Record {
	switch w.mutant {
	case "settles by an older view":
		return r.Settle(earlier)
	case "forgets who joins":
		for i := range r.Entries {
			r.Entries = slices.Clone(r.Entries)
			r.Entries[i].Joining = false
		}
	}
	return r.Settle(now)
}

// step has one thing happen. Faults are left out in the end.
func (w *world) step(faults bool) {
	m := w.members[w.random.IntN(len(w.members))]
	choice := w.random.IntN(75)
	if faults && w.random.IntN(1000) < w.faults {
		choice = 75 + w.random.IntN(25)
	}
	switch {
	case choice < 40:
		if !m.hung {
			w.stepAgent(m)
		}
	case choice < 50:
		if m.run != nil {
			w.commit(m.run)
		}
	case choice < 56:
		m.disk = max(m.disk, m.memory)
	case choice < 62:
		if r := m.run; r != nil && slices.Contains(r.members, m.pod) && w.hasMajority(r, m.pod) {
			r.online[m.pod], m.disk = true, m.memory
		}
	case choice < 68:
		if m.run != nil {
			w.expel(m.run)
		}
	case choice < 75:
		w.loseMajority(m)
	case choice < 80:
		w.crash(m)
	case choice < 88:
		m.up = true
	case choice < 91:
		m.reached = !m.reached
	case choice < 94:
		w.api = !w.api
	case choice < 95 && w.setsBack:
		w.setBack()
	case choice < 95:
		m.agent = simAgent{}
	case choice < 98:
		m.hung = !m.hung
	case choice < 100:
		for _, each := range w.members {
			w.crash(each)
		}
	}
}

func (w *world) crash(m *simMember) {
	if m.up {
		w.note("%d crashes with %d of %d", m.pod, m.disk, m.memory)
	}
	m.up, m.run, m.memory = false, nil, m.disk
	m.agent = simAgent{}
}

// play plays one history, and says what it broke.
func play(seed uint64, members int, mutant string) *world {
	return newWorld(seed, members, mutant).play()
}

func (w *world) play() *world {
	for range 1500 {
		w.step(true)
		if w.broken != "" {
			return w
		}
	}
	w.api = true
	for _, m := range w.members {
		m.up, m.reached, m.hung = true, true, false
	}
	for range 6000 {
		w.step(false)
		if w.broken != "" || w.isWhole() {
			return w
		}
	}
	w.fail("the members do not find together: %v", w.record)
	return w
}

// isWhole says whether all members are online in one group.
func (w *world) isWhole() bool {
	r := w.members[0].run
	for _, m := range w.members {
		if r == nil || m.run != r || !r.online[m.pod] {
			return false
		}
	}
	return true
}

// Whatever happens, nothing acknowledged is lost, no two groups take writes, and in the
// end all members are in one group.
func TestHistoriesLoseNothing(t *testing.T) {
	histories := uint64(2000)
	if more, err := strconv.ParseUint(os.Getenv("HOLDFAST_HISTORIES"), 10, 64); err == nil {
		histories = more // a longer search
	}
	acked, runs := int64(0), 0
	for seed := range histories {
		w := play(seed, 1+2*int(seed%3), "")
		acked += w.acked
		runs += len(w.runs)
		if w.broken != "" {
			t.Fatalf("history %d: %s\n%v", seed, w.broken, w.events)
		}
	}
	t.Logf("%d writes, %d groups", acked, runs)
	if acked < int64(histories) || runs < int(histories) {
		t.Errorf("only %d writes were acknowledged", acked)
	}
}

// The simulation finds rules that are broken on purpose. Where two rules protect from
// the same loss, both are broken: the primary persists who joins, and the record is
// replaced only as it was read.
func TestBrokenRulesAreFound(t *testing.T) {
	// The history in which each was found first, to begin with.
	for mutant, first := range map[string]uint64{
		"a majority starts": 8, "joins unrecorded": 37, "forgets who joins": 10661, "settles by an older view": 5850,
		"starts alone": 5850, "writes over": 1418,
	} {
		t.Run(mutant, func(t *testing.T) { findBroken(t, play, first, mutant) })
	}
}

// findBroken plays histories of three members, from the first on, until one is broken by a
// mutant.
func findBroken(t *testing.T, play func(seed uint64, members int, mutant string) *world, first uint64, mutant string) {
	t.Helper()
	for seed := range uint64(20000) {
		if w := play(first+seed, 3, mutant); w.broken != "" {
			t.Logf("history %d: %s", first+seed, w.broken)
			return
		}
	}
	t.Error("it was not found")
}
