package election

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// failsafeRound is one round in which a primary without the API server asks the
// members that may lead not to be elected.
type failsafeRound struct {
	sent      time.Duration
	asked     []string
	confirmed []string
	promised  time.Duration // by each of those that confirmed
}

// beginRound asks exactly the members that may lead. A member is asked, too, if a
// write whose outcome is unknown may have made it one that may lead.
func (f *failsafeRound) beginRound(m member, now time.Duration) []Effect {
	asked := slices.Concat(m.lease.record.Volumes, m.requests.listAdmitted())
	slices.Sort(asked)
	asked = slices.DeleteFunc(slices.Compact(asked), func(v string) bool { return v == m.Disk.VolumeID })
	f.sent, f.asked, f.confirmed, f.promised = now, asked, nil, lease.MaxDuration
	var effects []Effect
	for _, volume := range asked {
		effects = append(effects, AskConfirm{volume, ConfirmRequest{From: m.Disk.VolumeID, Term: m.term, Sent: now}})
	}
	return effects
}

// endRound forgets who confirmed.
func (f *failsafeRound) endRound() { f.asked, f.confirmed = nil, nil }

// recordConfirm records a reply to this round, and reports whether it is the first
// of its member.
func (f *failsafeRound) recordConfirm(r ConfirmReply) bool {
	if !r.Confirmed || r.Sent != f.sent || slices.Contains(f.confirmed, r.From) {
		return false
	}
	f.confirmed = append(slices.Clone(f.confirmed), r.From)
	f.promised = min(f.promised, cmp.Or(r.Promised, lease.DefaultDuration))
	return true
}

// isConfirmed reports whether every member that was asked has confirmed.
func (f failsafeRound) isConfirmed() bool {
	return !slices.ContainsFunc(f.asked, func(v string) bool { return !slices.Contains(f.confirmed, v) })
}

// answerConfirm promises not to be elected, only while this member does not reach
// the API server either and has no claim whose outcome is unknown. A member that is
// asked before it noticed an outage reads the Lease at once.
func (m *member) answerConfirm(now time.Duration, r ConfirmRequest) []Effect {
	known := m.Disk.Known
	follows := m.Phase == Standby && known.Term == r.Term && known.HolderVolume == r.From
	confirmed := follows && m.requests.outage
	var effects []Effect
	promised := m.findExpiry().Duration()
	if confirmed {
		m.promise = max(m.promise, now+promised)
	} else if follows {
		effects = m.requests.startReading(now)
	}
	return append(effects, Confirm{r.From, ConfirmReply{From: m.Disk.VolumeID, Term: r.Term, Sent: r.Sent, Confirmed: confirmed, Promised: promised}})
}
