package metrics

import "sync"

// AskedCheckpoints counts checkpoints that a client asked for: a backup, a copy, or a person.
// PostgreSQL counts them as requested, as those for which the amount of WAL is the reason. But
// that amount requests one only after so much WAL since the last one began; what is requested
// after less was asked for. One that is asked for after more counts as the other kind, whose
// place it takes: the next one is due as much later.
type AskedCheckpoints struct {
	mu sync.Mutex
	// last is the sample before; nil for none.
	last *checkpointSample
	// begun is where the WAL was at least when the last checkpoint began.
	begun float64
	total float64
}

// checkpointSample is what a server says of its checkpoints at one time.
type checkpointSample struct {
	// requested and timed count the checkpoints that have begun.
	requested, timed float64
	// at is where the WAL ends, redo where it was when the last complete checkpoint began, and
	// least how much of it requests one; in bytes.
	at, redo, least float64
}

// Count adds a sample, and returns how many were asked for since the first one.
func (a *AskedCheckpoints) Count(s checkpointSample) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.last
	a.last = &s
	if before == nil || s.requested < before.requested || s.timed < before.timed || s.at < before.at {
		a.begun = s.redo // the first sample, or of a server that was started anew
		return a.total
	}
	rose := s.requested - before.requested
	if s.at-a.begun < s.least {
		a.total += rose
	}
	switch began := rose > 0 || s.timed > before.timed; {
	case began && s.redo > before.redo: // it may be complete, or only the one before it
		a.begun = s.redo
	case began:
		a.begun = before.at
	default:
		a.begun = max(a.begun, s.redo)
	}
	return a.total
}

// Forget begins anew: the member does not lead.
func (a *AskedCheckpoints) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = nil
}
