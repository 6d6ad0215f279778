package election

import (
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// planFaults makes up to five things go wrong.
func (w *world) planFaults() {
	for range 1 + w.rng.IntN(5) {
		w.after(w.between(2*second, 38*second), w.fail)
	}
}

// holder prefers the primary for a fault.
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
	kind := w.rng.IntN(19)
	w.log("FAULT %d at member %d for %s", kind, n.id, d)
	switch kind {
	case 0, 1:
		w.crash(n, w.between(second/2, 15*second))
	case 2:
		w.cutPeers(n, d, true, true)
	case 3:
		w.cutPeers(n, d, w.chance(50), w.chance(50))
	case 4:
		w.cutAPI(n, d)
	case 5:
		n.answersLost = true
		w.after(d, func() { n.answersLost = false })
	case 6:
		w.cutPeers(n, d, true, true)
		w.cutAPI(n, d)
	case 7:
		n.agentStopped = true
		w.resumeLater(n, d)
	case 8:
		n.frozen = true
		w.disturb(n)
		w.resumeLater(n, d)
	case 9, 10:
		w.apiDown = true
		w.after(d, func() { w.apiDown = false })
		if w.chance(30) { // and one member restarts or is cut off meanwhile
			w.after(w.between(0, d), func() { w.crash(w.victim(), 3*second) })
		}
	case 11:
		w.apiSick = true
		w.after(d/3, func() { w.apiSick = false })
	case 12:
		n.forbidden = true
		w.after(d, func() { n.forbidden = false })
	case 13:
		w.editLease(n)
	case 14:
		n.whenAwake(func() { n.step(SwitchoverRequest{}) })
	case 15:
		w.replaceVolume(n)
	case 16:
		w.restoreAPI()
	case 17:
		w.splitAPI(n, d)
	case 18:
		w.loseMajority(n, d)
	}
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
	if !n.up {
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
	if w.calm || w.now > 35*second || w.rng.IntN(2000) != 0 {
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
	w.edited = true
	w.api.version++
	switch w.rng.IntN(6) {
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
	}
}

// replaceVolume has the member's pod come back on an empty volume. In
// asynchronous mode it may also be an older copy of its own: a synchronous write
// on that volume was lost by the storage.
func (w *world) replaceVolume(n *node) {
	w.crash(n, 2*second)
	if !w.sync && len(n.older) > 0 && w.chance(50) {
		old := n.older[w.rng.IntN(len(n.older))]
		n.disk, n.wal, n.end, n.flushed = old.disk, old.wal, old.flushed, old.flushed
		n.volume = n.disk.VolumeID
		n.truncate(n.flushed)
		return
	}
	if w.sync { // a lost volume takes an acknowledged copy with it
		return
	}
	if w.flaw == flawVolumeByName {
		n.disk = Persistent{VolumeID: n.volume, SystemIdentifier: "s", Timelines: n.disk.Timelines}
	} else {
		w.nextUID++
		n.volume = "empty" + strconv.Itoa(w.nextUID)
		n.disk = Persistent{VolumeID: n.volume}
	}
	n.wal, n.end, n.flushed, n.older = nil, 0, 0, nil
}

// restoreAPI stops the API server and restores its state, its versions included.
func (w *world) restoreAPI() {
	if len(w.older) == 0 || len(w.nodes) < 3 || !w.sync {
		return
	}
	w.edited, w.apiDown = true, true
	w.after(w.between(5*second, 15*second), func() {
		w.log("FAULT: the API server is back, with an older state")
		w.apiDown = false
		w.api = w.older[w.rng.IntN(len(w.older))]
	})
}

// checkElection judges a promotion at its end.
func (w *world) checkElection(n *node, e Promote) {
	w.elections++
	if by, is := w.promoted[e.Timeline]; is {
		w.violate("members %d and %d were promoted to timeline %d", by, n.id, e.Timeline)
	}
	w.promoted[e.Timeline] = n.id
	if n.disk.Wrote != e.Term || n.disk.Promised < e.Term {
		w.violate("member %d leads in term %d, but persisted %d", n.id, e.Term, n.disk.Wrote)
	}
	if len(n.wal) == 0 || n.disk.SystemIdentifier == "" || !n.disk.Known.MayLead(n.volume) {
		w.violate("member %d leads with volume %s, which may not", n.id, n.volume)
	}
	if w.sync {
		for timeline, end := range w.acked {
			if n.endOn(timeline) < end {
				w.violate("member %d leads with timeline %d up to %d; %d was acknowledged", n.id, timeline, n.endOn(timeline), end)
			}
		}
	}
	for _, m := range w.nodes {
		if m == n || !m.up || m.frozen || m.agentStopped || !w.isLinked(n.id, m.id) || w.lossy || w.now-w.quiet[n.id][m.id] < 8*second {
			continue
		}
		if m.disk.Known.Term > e.Term {
			w.violate("member %d leads in term %d, member %d knows of term %d", n.id, e.Term, m.id, m.disk.Known.Term)
		}
		eligible := n.disk.Known.MayLead(m.volume) && m.endOn(n.disk.Known.ReachedTimeline) > 0
		if eligible && m.position().Newer(n.position()) {
			w.violate("member %d leads with %v, member %d answers and has %v", n.id, n.position(), m.id, m.position())
		}
	}
}
