// Package health judges whether a database accepts new connections, and answers its agent.
package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

const (
	// healthInterval is between two attempts to connect anew.
	healthInterval = 2 * time.Second
	// silentInterval is between two while there is no answer.
	silentInterval = time.Second
	// restAfter is how much longer the pause after an answer is than the attempt was: a
	// server pays for each connection with a process, and one that starts them slowly is
	// not to be occupied with this.
	restAfter = 20
)

// Health is whether a database accepts new connections, and answers its agent. Sessions
// that are open say nothing of that: they may go on while the process that accepts
// stands still.
type Health struct {
	// Database by name, as messages have it.
	Database string
	Log      *slog.Logger

	mu      sync.Mutex
	answers Answers
	// symptom is what was wrong at the last attempt in vain.
	symptom string
	// disk says that a process of the database waited for a disk when it was
	// looked at last.
	disk bool
	hung chan struct{}
}

// ErrUnanswered is what an attempt fails with where the database accepts connections, but
// answers no query of its agent.
var ErrUnanswered = errors.New("answers no query of its agent")

// unaccepted is the symptom of every other attempt in vain.
const unaccepted = "accepts no new connection"

// NewHealth is that of a database that has just started.
func NewHealth(database string, log *slog.Logger) *Health {
	return &Health{Database: database, Log: log, symptom: unaccepted, hung: make(chan struct{}, 1)}
}

// Hung yields once the database has not answered for HungLimit.
func (h *Health) Hung() <-chan struct{} { return h.hung }

// HungError is what ended a run of the database.
func (h *Health) HungError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Errorf("%s %s for %s: it was killed, and is started again", h.Database, h.symptom, HungLimit)
}

// Serving says whether clients may be sent to the database, and if not, why.
func (h *Health) Serving() (serving bool, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.answers.Serving():
		return true, ""
	case h.disk:
		return false, h.Database + " " + h.symptom + ", and waits for its disk: check the node and the volume's storage; it is not restarted while it waits"
	default:
		return false, fmt.Sprintf("%s %s: it is killed and started again when that lasts %s", h.Database, h.symptom, HungLimit)
	}
}

// recordSymptom records what was wrong at an attempt; nil where nothing was.
func (h *Health) recordSymptom(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, ErrUnanswered):
		h.symptom = ErrUnanswered.Error()
	case err != nil:
		h.symptom = unaccepted
	}
}

func (h *Health) recordAnswers(answers Answers, disk bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers, h.disk = answers, disk
}

// Follow connects anew again and again until ctx ends: connect fails where there
// was no answer; a refusal is one. A database that waits for its disk is not said
// to be hung: to kill it has no effect before the disk answers, and then it goes
// on by itself.
func (h *Health) Follow(ctx context.Context, lock *volumelock.VolumeLock, connect func(context.Context) error) {
	var answers Answers
	disk := false
	for pause := time.Duration(0); clock.Sleep(ctx, pause); {
		began := clock.Boottime()
		attempt, cancel := context.WithTimeout(ctx, answers.connectLimit())
		err := connect(attempt)
		cancel()
		if ctx.Err() != nil {
			return
		}
		h.recordSymptom(err)
		before := answers
		answers = answers.observeConnect(began, clock.Boottime(), err == nil)
		h.recordAnswers(answers, disk && !answers.Serving())
		// Looked at afterwards: where the disk is a network's, this may wait, too.
		disk = !answers.Serving() && lock.WaitsForDisk()
		h.recordAnswers(answers, disk)
		if answers.Serving() != before.Serving() {
			h.Log.Warn("whether the database answers has changed", "answers", answers.Serving(), "error", fmt.Sprint(err), "waitsForDisk", disk)
		}
		if answers.Hung() && !disk {
			select {
			case h.hung <- struct{}{}:
			default:
			}
		}
		pause = answers.pauseAfter(clock.Boottime() - began)
	}
}
