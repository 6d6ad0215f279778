package health

import "time"

// Limits of the silence of a database to which new connections are made.
const (
	// silentLimit is how long a database may fail to answer a new connection
	// before clients are sent elsewhere.
	silentLimit = 10 * time.Second
	// HungLimit is how long it may before it is ended and started again.
	HungLimit = time.Minute
	// attemptLimit is the most that one attempt counts for: while this process
	// itself stood still, nothing was asked.
	attemptLimit = 5 * time.Second
	// connectTime is how long one attempt to connect may take, and PatientTime how
	// long once the silence has lasted for silentLimit: a database that is short of
	// CPU time may accept slowly, and is not to be ended for that again and again.
	connectTime = 3 * time.Second
	PatientTime = 20 * time.Second
)

// Answers follows whether a process answers who asks it. It counts the time in
// which it was asked in vain, and not that since its last answer: an agent that
// stood still for a minute knows nothing of that minute. The zero value is that
// of a process that has not been asked yet.
type Answers struct {
	asked  time.Duration
	silent time.Duration
}

// Observe takes in one attempt: when it began and ended, and whether there was
// an answer.
func (a Answers) Observe(began, ended time.Duration, answered bool) Answers {
	return a.observeAttempt(began, ended, answered, attemptLimit)
}

// observeConnect is Observe for an attempt that might take connectLimit.
func (a Answers) observeConnect(began, ended time.Duration, answered bool) Answers {
	return a.observeAttempt(began, ended, answered, attemptLimit-connectTime+a.connectLimit())
}

// connectLimit is how long the next attempt to connect may take.
func (a Answers) connectLimit() time.Duration {
	if a.Serving() {
		return connectTime
	}
	return PatientTime
}

// pauseAfter is how long to wait after an attempt that took so long.
func (a Answers) pauseAfter(took time.Duration) time.Duration {
	if a.Silent() > 0 {
		return silentInterval
	}
	return min(max(healthInterval, restAfter*took), silentLimit)
}

func (a Answers) observeAttempt(began, ended time.Duration, answered bool, limit time.Duration) Answers {
	if answered {
		return Answers{asked: ended}
	}
	if a.asked > 0 && a.asked < began {
		began = a.asked // the pause before it counts, too
	}
	return Answers{asked: ended, silent: a.silent + min(max(ended-began, 0), limit)}
}

// LastAttempt is when the process was asked last.
func (a Answers) LastAttempt() time.Duration { return a.asked }

// Silent is how long the process was asked in vain.
func (a Answers) Silent() time.Duration { return a.silent }

// Serving says whether clients may be sent to the database.
func (a Answers) Serving() bool { return a.silent < silentLimit }

// Hung says that only another start helps.
func (a Answers) Hung() bool { return a.silent >= HungLimit }
