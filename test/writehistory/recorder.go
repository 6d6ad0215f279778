package writehistory

import (
	"slices"
	"sync"
	"time"
)

// Recorder is a history while it is made. Its methods may be called at any time.
type Recorder struct {
	began time.Time

	mu        sync.Mutex
	writes    []Write
	connects  []Attempt
	elections []Election
}

// Attempt is one to open a connection.
type Attempt struct {
	Began, Ended time.Duration
	Connected    bool
}

// NewRecorder begins a history.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Now is the time since the history began.
func (r *Recorder) Now() time.Duration { return time.Since(r.began) }

// AddWrite adds a write that has ended.
func (r *Recorder) AddWrite(w Write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, w)
}

// AddAttempt adds an attempt that has ended.
func (r *Recorder) AddAttempt(a Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connects = append(r.connects, a)
}

// AddElection adds an election unless it is known.
func (r *Recorder) AddElection(e Election) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.elections, func(known Election) bool { return known.Timeline == e.Timeline }) {
		r.elections = append(r.elections, e)
	}
}

// Writes are those of the clients that ended since a time; all clients for none.
func (r *Recorder) Writes(since time.Duration, clients ...string) []Write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.writes), func(w Write) bool {
		return w.Ended < since || len(clients) > 0 && !slices.Contains(clients, w.Client)
	})
}

// Elections are those that were observed.
func (r *Recorder) Elections() []Election {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.elections)
}

// LongestGap is the longest time without an acknowledged write of a client, from a
// time until now.
func (r *Recorder) LongestGap(since time.Duration, client string) time.Duration {
	var at []time.Duration
	for _, w := range r.Writes(since, client) {
		if w.Acknowledged {
			at = append(at, w.Ended)
		}
	}
	return longestBetween(since, at, r.Now())
}

// LongestRefusal is the longest time, from a time until now, in which no new
// connection was accepted. It counts from the begin of the attempt that succeeds.
func (r *Recorder) LongestRefusal(since time.Duration) time.Duration {
	now := r.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var at []time.Duration
	for _, a := range r.connects {
		if a.Connected && a.Began >= since {
			at = append(at, a.Began)
		}
	}
	return longestBetween(since, at, now)
}

// CountAttempts are the connections that were accepted and that were refused, of attempts
// that began since a time.
func (r *Recorder) CountAttempts(since time.Duration) (connected, refused int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.connects {
		switch {
		case a.Began < since:
		case a.Connected:
			connected++
		default:
			refused++
		}
	}
	return connected, refused
}

// longestBetween is the longest distance between moments in order.
func longestBetween(from time.Duration, at []time.Duration, to time.Duration) time.Duration {
	longest, before := time.Duration(0), from
	for _, moment := range append(at, to) {
		longest, before = max(longest, moment-before), moment
	}
	return longest
}

// Spread is the least, the middle and the most of measurements.
func Spread(measured []time.Duration) (least, middle, most time.Duration) {
	if len(measured) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(measured))
	return sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]
}
