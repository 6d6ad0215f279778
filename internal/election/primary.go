package election

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// fence ends the server and the member's leadership.
func (s *State) fence() []Effect {
	s.Phase, s.following, s.writing = Standby, 0, false
	s.confirmed, s.readable = nil, false
	return []Effect{Fence{}}
}

func (s *State) tickPrimary(now time.Duration) []Effect {
	timing := s.Config.Timing
	if s.writing && now-s.writeSent >= timing.RequestTimeout() {
		s.writing, s.outage = false, true
		if s.Phase == Releasing {
			s.Phase = Standby
			return nil
		}
	}
	switch {
	case s.Phase == Releasing:
		return nil
	case now >= s.deadlines.Fence && s.flaw != flawNoFence, s.Phase == Ending && now >= s.stopBy:
		return s.fence()
	case s.Phase == Leading && now >= s.deadlines.Soft && s.flaw != flawNoFence:
		return s.beginStop(now)
	}
	return append(s.renewWhenDue(now), s.askConfirmations(now)...)
}

// renewWhenDue renews, or reads the Lease first if the last renewal's outcome is
// unknown.
func (s *State) renewWhenDue(now time.Duration) []Effect {
	due := now-s.writeSent >= s.Config.Timing.Renewal()
	if s.writing || s.reading || s.Phase == Ending || !due && !s.outage {
		return nil
	}
	if s.outage {
		s.reading, s.readSent = true, now
		return []Effect{ReadLease{now}}
	}
	return s.renew(now)
}

func (s *State) renew(now time.Duration) []Effect {
	record, err := s.record.Renew(s.Config.UID, s.term, s.reached)
	if err != nil {
		return s.fence()
	}
	s.writing, s.writeSent, s.pending = true, now, record
	return []Effect{WriteLease{Base: s.version, Record: record, Sent: now}}
}

func (s *State) wroteRenewal(now time.Duration, w LeaseWritten) []Effect {
	switch w.Answer {
	case lease.Done:
		s.version, s.record, s.renewed = w.Version, s.pending, w.Sent
		effects := s.recordKnown(s.record)
		s.deadlines = s.Config.Timing.Deadlines(w.Sent)
		if s.flaw == flawDeadlineFromAnswer {
			s.deadlines = s.Config.Timing.Deadlines(now)
		}
		return append([]Effect{ExtendGuard{s.deadlines.Fence}}, effects...)
	case lease.Conflict, lease.Missing:
		s.reading, s.readSent = true, now
		return []Effect{ReadLease{now}}
	}
	return nil
}

// readAsPrimary continues only with the Lease that this member wrote. A Lease
// that was deleted is created again, by its holder alone.
func (s *State) readAsPrimary(now time.Duration, r lease.Reading) []Effect {
	switch r.Answer {
	case lease.Missing:
		s.version = lease.Version{}
		return s.renew(now)
	case lease.Done:
		if r.Record.HolderUID != s.Config.UID || r.Record.Term != s.term || r.Record.Validate() != nil {
			return s.fence()
		}
		s.version = r.Version
		return s.renew(now)
	}
	return nil
}

// beginSwitchover shuts down in order, if the Lease was renewed just now.
func (s *State) beginSwitchover(now time.Duration) []Effect {
	if s.Phase != Leading || s.writing || s.outage || now-s.renewed > 2*s.Config.Timing.Renewal() {
		return nil
	}
	return s.beginStop(now)
}

func (s *State) beginStop(now time.Duration) []Effect {
	s.Phase, s.stopBy = Ending, now+s.Config.Timing.Duration()/2
	return []Effect{StopServer{}}
}

// releaseLease gives the Lease up once no process of the server is left.
func (s *State) releaseLease(now time.Duration, end lease.Position) []Effect {
	if s.Phase != Ending {
		return nil
	}
	record, err := s.record.Release(s.Config.UID, s.term, end)
	if err != nil {
		return s.fence()
	}
	s.Phase, s.following = Releasing, 0
	s.writing, s.writeSent, s.pending = true, now, record
	return []Effect{WriteLease{Base: s.version, Record: record, Sent: now}}
}

// askConfirmations asks exactly the members that may lead, once per renewal time,
// while the API server does not answer.
func (s *State) askConfirmations(now time.Duration) []Effect {
	others := len(s.record.Volumes) - 1
	if s.Phase != Leading || !s.outage || others == 0 || now-s.roundSent < s.Config.Timing.Renewal()/8 {
		return nil
	}
	s.roundSent, s.confirmed = now, nil
	var effects []Effect
	for _, volume := range s.record.Volumes {
		if volume != s.Disk.VolumeID {
			effects = append(effects, AskConfirm{volume, ConfirmRequest{From: s.Disk.VolumeID, Term: s.term, Sent: now}})
		}
	}
	return effects
}

// countConfirm extends the deadlines, from the send of the request, when every
// member that may lead has confirmed.
func (s *State) countConfirm(r ConfirmReply) []Effect {
	if s.Phase != Leading || !r.Confirmed || r.Term != s.term || r.Sent != s.roundSent || slices.Contains(s.confirmed, r.From) {
		return nil
	}
	s.confirmed = append(slices.Clone(s.confirmed), r.From)
	needed := len(s.record.Volumes) - 1
	if s.flaw == flawConfirmOne {
		needed = 1
	}
	if len(s.confirmed) < needed {
		return nil
	}
	extended := s.Config.Timing.Deadlines(s.roundSent)
	if extended.Fence <= s.deadlines.Fence {
		return nil
	}
	s.deadlines = extended
	return []Effect{ExtendGuard{s.deadlines.Fence}}
}
