package election

import (
	"slices"
	"time"
)

// isSilent reports whether the API server does not answer: a request timed out, or
// one has waited so long that it probably will. Asking too early costs nothing.
func (s State) isSilent(now time.Duration) bool {
	patience := s.Config.Timing.RequestTimeout() / 3
	return s.outage || s.writing && now-s.writeSent >= patience || s.reading && now-s.readSent >= patience
}

// askConfirmations asks exactly the members that may lead, several times per
// renewal, while the API server does not answer. A member is asked, too, if a write
// whose outcome is unknown may have made it one that may lead.
func (s *State) askConfirmations(now time.Duration) []Effect {
	if s.Phase != Leading || !s.isSilent(now) || now-s.roundSent < s.Config.Timing.Renewal()/8 {
		return nil
	}
	asked := slices.Concat(s.record.Volumes, s.pending.Volumes)
	slices.Sort(asked)
	asked = slices.DeleteFunc(slices.Compact(asked), func(v string) bool { return v == s.Disk.VolumeID })
	s.roundSent, s.asked, s.confirmed = now, asked, nil
	if len(asked) == 0 { // no other member may lead
		return s.extend(now)
	}
	var effects []Effect
	for _, volume := range asked {
		effects = append(effects, AskConfirm{volume, ConfirmRequest{From: s.Disk.VolumeID, Term: s.term, Sent: now}})
	}
	return effects
}

// countConfirm extends the deadlines, from the send of the request, when every
// member that was asked has confirmed.
func (s *State) countConfirm(r ConfirmReply) []Effect {
	if s.Phase != Leading || !r.Confirmed || r.Term != s.term || r.Sent != s.roundSent || slices.Contains(s.confirmed, r.From) {
		return nil
	}
	s.confirmed = append(slices.Clone(s.confirmed), r.From)
	for _, volume := range s.asked {
		if !slices.Contains(s.confirmed, volume) {
			return nil
		}
	}
	return s.extend(s.roundSent)
}
