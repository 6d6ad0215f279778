package election

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// planFaults makes up to five things go wrong.
func (w *world) planFaults() {
	for range 1 + w.rng.IntN(5) {
		w.after(w.between(2*second, lastFault), w.fail)
	}
}

// victim prefers the primary for a fault.
func (w *world) victim() *node {
	if w.chance(60) {
		for _, n := range w.nodes {
			if n.primary {
				return n
			}
		}
	}
	return w.nodes[w.rng.IntN(len(w.nodes))]
}

func (w *world) fail() {
	n, d := w.victim(), w.between(second, 25*second)
	faults := []func(){
		func() { w.crash(n, w.between(second/2, 15*second)) },
		func() { w.crash(n, w.between(second/2, 15*second)) },
		func() { w.cutPeers(n, d, true, true) },
		func() { w.cutPeers(n, d, w.chance(50), w.chance(50)) },
		func() { w.cutAPI(n, d) },
		func() { n.answersLost = true; w.after(d, func() { n.answersLost = false }) },
		func() { w.cutPeers(n, d, true, true); w.cutAPI(n, d) },
		func() { n.agentStopped = true; w.resumeLater(n, d) },
		func() { n.frozen = true; w.resumeLater(n, d) },
		func() { w.failAPI(d) },
		func() { w.failAPI(d) },
		func() { w.apiSick = true; w.after(d/3, func() { w.apiSick = false }) },
		func() { n.forbidden = true; w.after(d, func() { n.forbidden = false }) },
		func() { w.editLease(n) },
		func() { w.switchOver(n) },
		func() { w.switchOver(n) },
		func() { w.replaceVolume(n) },
		func() { w.restoreAPI() },
		func() { w.splitAPI(n, d) },
		func() { w.loseMajority(n, d) },
		func() { w.stopMachine(n, d) },
		func() { n.whenAwake(func() { n.step(ForceRequest{"early" + strconv.Itoa(n.epoch)}) }) },
		func() { n.whenAwake(func() { n.step(ServerFailed{n.term}) }) },
	}
	kind := w.rng.IntN(len(faults))
	if kinds := w.flaw.listFaults(); len(kinds) > 0 {
		kind = kinds[w.rng.IntN(len(kinds))]
	}
	w.log("FAULT %d at member %d for %s", kind, n.id, d)
	faults[kind]()
}

// changeDuration has a person declare another duration of the Lease. Members take it
// up at different times.
func (w *world) changeDuration() {
	if w.healed {
		return
	}
	w.after(w.between(6*second, 14*second), w.changeDuration)
	choices := []time.Duration{lease.MinDuration, 15 * second, w.longest}
	timing, late := timingOf(choices[w.rng.IntN(len(choices))]), 15*second
	if w.flaw == flawShortenAtOnce && timing.Duration() == lease.MinDuration { // the moment that shows it is short
		late = second
		w.after(w.between(2*second, 8*second), w.fail)
	}
	for _, n := range w.nodes {
		if n.id == w.earlier {
			continue
		}
		w.after(w.between(0, late), func() {
			n.timing = timing
			n.whenAwake(func() {
				n.step(LimitsWanted{NoFailover: n.state.Config.NoFailover, MaxLag: n.state.Config.MaxLag, Timing: timing})
			})
		})
	}
	w.log("the Lease's duration is to be %s", timing.Duration())
}

// reportDurations has each member ask the others which duration of the Lease they know.
func (w *world) reportDurations() {
	w.after(w.between(500*time.Millisecond, 1500*time.Millisecond), w.reportDurations)
	for _, n := range w.nodes {
		if !n.isAwake() {
			continue
		}
		for _, m := range w.nodes {
			if n.hears(m) {
				n.knows[m.id] = DurationReport{m.volume, m.disk.Known.Term, m.disk.Known.Duration, n.clock()}
			}
		}
		in := DurationsKnown{slices.Clone(n.knows[:])}
		if w.flaw == flawRelyUnknown || w.flaw == flawOwnDuration {
			in.Reports = nil
			for _, m := range w.nodes {
				in.Reports = append(in.Reports, DurationReport{m.volume, n.state.term, lease.MaxDuration, n.clock()})
			}
		}
		n.later(w.between(time.Millisecond, 300*time.Millisecond), func() { n.step(in) })
	}
}

// askMembers has each member ask the others each second whether they are there.
func (w *world) askMembers() {
	w.after(w.between(900*time.Millisecond, 1100*time.Millisecond), w.askMembers)
	for _, n := range w.nodes {
		for _, m := range w.nodes {
			isLost := w.lossy && w.chance(15)
			switch {
			case !n.isAwake():
			case m == n || n.hears(m) && !isLost:
				n.silent[m.id] = silence{}
			case n.silent[m.id].questions == 0:
				n.silent[m.id] = silence{n.clock(), 1}
			default:
				n.silent[m.id].questions++
			}
		}
	}
}

// failAPI stops the API server. Now and then one member ends meanwhile.
func (w *world) failAPI(d time.Duration) {
	w.apiDown = true
	w.after(d, func() { w.apiDown = false })
	if w.chance(30) {
		w.after(w.between(0, d), func() { w.crash(w.victim(), 3*second) })
	}
}

func (w *world) switchOver(n *node) {
	target := ""
	if w.chance(60) {
		target = w.nodes[w.rng.IntN(len(w.nodes))].volume
	}
	n.whenAwake(func() { n.step(SwitchoverRequest{Target: target}) })
}

// stopMachine has a hypervisor stop a machine and its clock. Its primary cannot
// know how long it was away, so that only synchronous mode keeps its guarantee.
func (w *world) stopMachine(n *node, d time.Duration) {
	if !w.sync || w.changing {
		return
	}
	w.stopped, n.frozen = true, true
	began, epoch, resumes := w.now, n.epoch, n.resumes
	w.disturb(n)
	w.after(d, func() {
		if n.epoch == epoch && n.resumes == resumes { // no clock goes back
			n.offset -= time.Duration(float64(w.now-began) * n.rate)
			w.disturb(n)
			n.extendGuardEvent()
			n.resume()
		}
	})
}

// splitAPI leaves the API server to one member alone, which does not reach n.
func (w *world) splitAPI(n *node, d time.Duration) {
	alone := w.nodes[(n.id+1)%len(w.nodes)]
	w.cut[n.id][alone.id], w.cut[alone.id][n.id] = true, true
	for _, m := range w.nodes {
		if m != alone {
			w.cutAPI(m, d)
		}
	}
	w.after(d, func() {
		w.disturb(n)
		w.cut[n.id][alone.id], w.cut[alone.id][n.id] = false, false
	})
}

// loseMajority ends all but one member, which was cut off before.
func (w *world) loseMajority(n *node, d time.Duration) {
	last := w.nodes[(n.id+1)%len(w.nodes)]
	w.cutPeers(last, d/2, true, true)
	w.after(d/2, func() {
		for _, m := range w.nodes {
			if m != last {
				w.crash(m, 20*second)
			}
		}
	})
}

func (w *world) crash(n *node, away time.Duration) {
	if !n.up || w.healed {
		return
	}
	w.disturb(n)
	n.stop(w.chance(50))
	epoch, newPod := n.epoch, w.chance(50)
	w.after(away, func() {
		if n.epoch == epoch {
			n.start(newPod)
			w.disturb(n)
		}
	})
}

// crashing ends a member between two effects, now and then.
func (w *world) crashing(n *node) bool {
	if w.calm || w.now > lastFault || w.rng.IntN(2000) != 0 {
		return false
	}
	w.log("FAULT: member %d ends between two effects", n.id)
	w.crash(n, 2*second)
	return true
}

func (w *world) resumeLater(n *node, d time.Duration) {
	epoch := n.epoch
	w.after(d, func() {
		if n.epoch == epoch {
			w.disturb(n)
			n.resume()
		}
	})
	w.disturb(n)
}

// disturb notes that the member did not answer until now.
func (w *world) disturb(n *node) {
	for i := range w.nodes {
		w.quiet[n.id][i], w.quiet[i][n.id] = w.now, w.now
	}
}

func (w *world) cutPeers(n *node, d time.Duration, out, in bool) {
	for i := range w.nodes {
		if i != n.id {
			w.cut[n.id][i] = w.cut[n.id][i] || out
			w.cut[i][n.id] = w.cut[i][n.id] || in
		}
	}
	w.after(d, func() {
		w.disturb(n)
		for i := range w.nodes {
			w.cut[n.id][i], w.cut[i][n.id] = false, false
		}
	})
}

func (w *world) cutAPI(n *node, d time.Duration) {
	n.apiCut = true
	w.after(d, func() { n.apiCut = false })
}

// editLease deletes the Lease or edits it by hand.
func (w *world) editLease(n *node) {
	w.edited, w.editedAt = true, w.now
	w.api.version++
	switch w.rng.IntN(8) {
	case 0, 1:
		w.api.exists = false
	case 2:
		w.api.record.HolderUID, w.api.record.HolderVolume, w.api.record.Shutdown = n.uid, n.volume, nil
	case 3:
		w.api.record.HolderUID = ""
	case 4:
		w.api.record = lease.Record{}
	case 5:
		w.api.record.Term += 5
	case 6:
		w.api.record.SystemIdentifier = "of another database"
	case 7:
		w.api.record.Volumes = []string{n.volume}
	}
}

// replaceVolume has the member's pod come back on an empty volume, or on an older
// copy of its own, once per history in synchronous mode: a volume takes what it
// alone has acknowledged with it.
func (w *world) replaceVolume(n *node) {
	if w.sync && (w.lost || w.restored) {
		return
	}
	w.lost = true
	w.crash(n, 2*second)
	n.shown = lease.Position{}
	if len(n.older) > 0 && w.chance(50) {
		w.reset = true
		old := n.older[w.rng.IntN(len(n.older))]
		n.disk, n.wal, n.end, n.flushed = old.disk, slices.Clone(old.wal), old.flushed, old.flushed
		n.volume, n.known = n.disk.VolumeID, n.disk.Known.Term
		n.truncate(n.flushed)
		return
	}
	if w.flaw == flawVolumeByName {
		n.disk = Persistent{VolumeID: n.volume, SystemIdentifier: "s", Timelines: n.disk.Timelines}
	} else {
		w.nextUID++
		n.volume = "empty" + strconv.Itoa(w.nextUID)
		n.disk = Persistent{VolumeID: n.volume}
	}
	n.wal, n.end, n.flushed, n.older, n.known = nil, 0, 0, nil, 0
}

// restoreAPI stops the API server and restores its state, its versions included.
func (w *world) restoreAPI() {
	if len(w.older) == 0 || len(w.nodes) < 3 || w.sync && w.lost {
		return
	}
	w.edited, w.restored, w.apiDown = true, true, true
	w.after(w.between(5*second, 15*second), func() {
		w.log("FAULT: the API server is back, with an older state")
		w.apiDown, w.restoredAt = false, w.now
		w.api = w.older[w.rng.IntN(len(w.older))]
	})
}

// checkElection judges a promotion at its end.
func (w *world) checkElection(n *node, e Promote) {
	w.elections++
	by, is := w.promoted[e.Timeline]
	switch {
	case is && w.isReuseExcused(n, e):
		w.reused[e.Timeline] = true
	case is:
		w.violate("members %d and %d were promoted to timeline %d", by, n.id, e.Timeline)
	}
	w.promoted[e.Timeline] = n.id
	if n.disk.Wrote != e.Term || n.disk.Promised < e.Term {
		w.violate("member %d leads in term %d, but persisted %d", n.id, e.Term, n.disk.Wrote)
	}
	if len(n.wal) == 0 || n.disk.SystemIdentifier == "" || n.disk.Rewinding || !n.disk.Known.MayLead(n.volume) {
		w.violate("member %d leads with volume %s, which may not", n.id, n.volume)
	}
	if w.forced == e.Term {
		return
	}
	if w.stopped && w.api.record.Term > e.Term {
		return // its machine stopped before the promotion: its quorum acknowledges nothing
	}
	w.checkData(n)
	w.checkPeers(n, e)
}

// checkData: in synchronous mode nothing that was acknowledged is lost. If a volume
// was reset to an older state, that is what the Lease knows of.
func (w *world) checkData(n *node) {
	if reached := n.disk.Known.ReachedTimeline; n.endOnTimeline(reached) == 0 {
		w.violate("member %d leads without timeline %d, which two members had", n.id, reached)
	}
	if w.reset {
		if w.floor.Timeline > 0 && n.endOnTimeline(w.floor.Timeline) < w.floor.LSN {
			w.violate("member %d leads with %v; %v was acknowledged", n.id, n.position(), w.floor)
		}
		return
	}
	for id, end := range w.acked {
		if n.endOnFork(id) < end {
			w.violate("member %d leads with %v; %d of fork %d was acknowledged", n.id, n.position(), end, id)
		}
	}
}

// answers reports whether the members reached each other all the time that an
// election takes before its claim: the winner may learn of that late.
func (w *world) answers(n, m *node) bool {
	return n.hears(m) && !w.lossy && w.claimedAt-w.quiet[n.id][m.id] >= w.longest*7/10
}

func (w *world) checkPeers(n *node, e Promote) {
	for _, m := range w.nodes {
		if m == n || !w.answers(n, m) {
			continue
		}
		if m.disk.Known.Term > e.Term && w.editedAt <= w.claimedAt {
			w.violate("member %d leads in term %d, member %d knows of term %d", n.id, e.Term, m.id, m.disk.Known.Term)
		}
		known := n.disk.Known
		eligible := known.MayLead(m.volume) && m.endOnTimeline(known.ReachedTimeline) > 0 && w.noFailover != m.id && !m.disk.Rewinding && m.disk.Failed < failedLimit
		more := m.position().Newer(n.position())
		if eligible && more {
			w.violate("member %d leads with %v, member %d answers and has %v", n.id, n.position(), m.id, m.position())
		}
		if more && w.isOwn(n, m.position()) {
			w.violate("member %d leads again with %v, and had streamed %v to member %d", n.id, n.position(), m.position(), m.id)
		}
	}
	if n.shown.Newer(n.position()) && w.isOwn(n, n.shown) {
		w.violate("member %d leads again with %v, and a reply showed that it had streamed %v", n.id, n.position(), n.shown)
	}
}

// isOwn reports whether the member itself wrote that, as the last one that led.
func (w *world) isOwn(n *node, p lease.Position) bool {
	last := n.state.replaced
	return !w.edited && last.HolderVolume == n.volume && last.Timeline == p.Timeline
}
