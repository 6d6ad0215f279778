package election

import (
	"slices"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// heal ends all faults: every member is up, reaches every other one and the API
// server.
func (w *world) heal() {
	w.log("all faults end")
	w.earlier = -1 // the roll-out of the agents ends
	w.healed, w.apiDown, w.apiSick, w.lossy, w.calm = true, false, false, false, true
	for _, n := range w.nodes {
		n.apiCut, n.answersLost, n.forbidden = false, false, false
		w.disturb(n)
		for i := range w.nodes {
			w.cut[n.id][i] = false
		}
	}
	for _, n := range w.nodes {
		switch {
		case !n.up:
			n.start(true)
		case n.frozen || n.agentStopped:
			n.resume()
		}
	}
	until := w.patience()
	if w.broken >= 0 {
		until += attempts
	}
	w.after(until-w.now, w.force)
}

// force has a person name the member with the newest data, until one leads. It is
// a mistake of the protocol if no rule explains why none was elected.
func (w *world) force() {
	if w.served <= w.settled() {
		if !w.mayStall() {
			w.violate("no member leads although all faults have ended")
		}
		w.log("a person forces member %d", w.newest().id)
		w.noFailover = -1
		for _, n := range w.nodes { // a member that cannot lead keeps others from it no longer
			n.state.Config.NoFailover = false
		}
		w.endOlderPrimary()
		n := w.newest()
		w.repeatForce(n, 0)
		w.disturbForce(n)
	}
}

// repeatForce has the person request it until a member leads, and with another ID once
// the member has used the last one up without leading.
func (w *world) repeatForce(n *node, requests int) {
	if w.served <= w.settled() {
		id := "late" + strconv.Itoa(requests)
		if n.state.Disk.Forced == id && n.state.Phase == Standby {
			requests++
		} else {
			n.step(ForceRequest{id})
		}
		w.after(second, func() { w.repeatForce(n, requests) })
	}
}

// disturbForce has faults go on while a person forces a member, in some histories: its
// claim gets no answer, or is not sent; its agent ends, or its server fails, before it
// serves.
func (w *world) disturbForce(n *node) {
	if w.chance(50) {
		return
	}
	w.lossy = w.chance(50)
	until := w.now + disturbance
	var disturb func()
	disturb = func() {
		n.apiCut, n.answersLost, w.apiSick = false, false, false
		if w.now >= until || w.served > w.settled() {
			w.lossy = false
			return
		}
		faults := []func(){
			func() { n.apiCut = true },
			func() { n.answersLost = true },
			func() { w.apiSick = true },
			func() { w.disturb(n); n.stop(w.chance(50)); n.start(w.chance(50)) },
			func() { n.step(ServerFailed{n.state.Term()}) },
			func() {},
		}
		kind := w.rng.IntN(len(faults))
		w.log("FAULT %d of the member that is forced", kind)
		faults[kind]()
		w.after(w.between(second/4, 3*second), disturb)
	}
	disturb()
}

// endOlderPrimary has a person delete the pod of a primary that others know a newer term
// of: its machine's clock stopped, and the Lease was deleted meanwhile.
func (w *world) endOlderPrimary() {
	for _, n := range w.nodes {
		isOlder := slices.ContainsFunc(w.nodes, func(m *node) bool { return m.disk.Known.Term > n.term })
		if n.primary && isOlder && w.stopped && w.edited {
			w.log("a person deletes the pod of member %d, which leads in an older term", n.id)
			n.stop(false)
			n.start(true)
		}
	}
}

// newest is the member with the newest data, of those whose volumes are on record and
// whose servers work.
func (w *world) newest() *node {
	return slices.MaxFunc(w.nodes, func(a, b *node) int {
		switch {
		case a.id == w.broken:
			return -1
		case b.id == w.broken:
			return 1
		case w.isOnRecord(a) != w.isOnRecord(b) && w.isOnRecord(a):
			return 1
		case w.isOnRecord(a) != w.isOnRecord(b):
			return -1
		case a.position().Newer(b.position()):
			return 1
		case b.position().Newer(a.position()):
			return -1
		}
		return b.id - a.id
	})
}

// mayStall reports whether a rule forbids every candidate: the Lease was edited,
// lost or set back (5), a volume was lost or set back (8, 10), or the members that
// may lead have less than others (10: noFailover, maxLag), or a member that cannot
// lead has what the quorum may have acknowledged (10), or votes are missing of members
// whose data is being replaced (18).
func (w *world) mayStall() bool {
	fails := w.broken >= 0 || slices.ContainsFunc(w.nodes, (*node).isStandingBack)
	if fails && (w.api.record.Quorum != nil || len(w.api.record.Volumes) < 2) {
		return true
	}
	return w.lacksVotes() || w.edited || w.lost || w.noFailover >= 0 || w.maxLag > 0
}

// lacksVotes reports whether members whose data is being rewound leave too few of the
// votes that are mandatory.
func (w *world) lacksVotes() bool {
	q := w.api.record.Quorum
	if q == nil {
		return false
	}
	votes := 0
	for _, n := range w.nodes {
		if slices.Contains(q.Volumes, n.volume) && !n.disk.Rewinding {
			votes++
		}
	}
	return votes < q.CountVotes()
}

// isOnRecord reports whether the member's volume may lead by the Lease, or by what
// the member knows of a Lease that is lost, edited or older than that.
func (w *world) isOnRecord(n *node) bool {
	record := w.api.record
	if !w.api.exists || record.Validate() != nil || record.Contradicts(n.disk.Known) != "" {
		record = n.disk.Known
	}
	return len(n.wal) > 0 && record.MayLead(n.volume)
}

// judgeEnd demands a primary that serves, if a volume on record is left.
func (w *world) judgeEnd() {
	isLeft := slices.ContainsFunc(w.nodes, func(n *node) bool { return n.id != w.broken && w.isOnRecord(n) })
	if !isLeft && !w.lost && w.broken < 0 {
		w.violate("no volume on record is left")
	}
	if w.violation == "" && isLeft && !w.hasSettled() {
		w.violate("no member leads, although a person forced member %d", w.newest().id)
	}
}

// wantMembers has the operator wish for members and a mode, as it does all the
// time: a member that streams may lead and acknowledges.
func (w *world) wantMembers() {
	w.after(w.between(second, 6*second), w.wantMembers)
	if w.changing && !w.healed && w.chance(20) {
		w.sync, w.write = w.chance(80), 1+w.rng.IntN(2)
	}
	for _, n := range w.nodes {
		if !n.canCommit() || n.agentStopped {
			continue
		}
		wanted := MembersWanted{Volumes: []string{n.volume}}
		for _, m := range w.nodes {
			// It would wait for a shorter Lease: the agent does not let it join.
			isUninformed := m.id == w.earlier && n.state.lease.record.Duration > lease.DefaultDuration && !n.state.lease.record.MayLead(m.volume)
			isLeftOut := isUninformed || w.changing && !w.healed && w.chance(w.leftOut)
			if m != n && !isLeftOut && m.up && len(m.wal) > 0 && m.lastFork() == n.lastFork() {
				wanted.Volumes = append(wanted.Volumes, m.volume)
			}
		}
		if !w.changing && !w.lost {
			return
		}
		if w.sync {
			wanted.Quorum = &lease.Quorum{Volumes: wanted.Volumes, Write: min(w.write, len(wanted.Volumes))}
		}
		if w.sync && !w.changing && len(wanted.Volumes) < 2 {
			return // no member discards the second copy
		}
		w.log("member %d is asked for %d members: %v", n.id, len(wanted.Volumes), strconv.Quote(w.describe(wanted.Quorum)))
		n.step(wanted)
	}
}

func (w *world) describe(q *lease.Quorum) string {
	if q == nil {
		return "asynchronous"
	}
	return strconv.Itoa(q.Write) + " of " + strconv.Itoa(len(q.Volumes))
}
