package recovery

import (
	"fmt"
	"regexp"
	"sync"
	"time"
)

// What PostgreSQL says of a recovery.
var (
	saysLast  = regexp.MustCompile(`[Ll]ast completed transaction was at log time ([-0-9]+ [0-9:.]+[-+][0-9:]+)`)
	saysEnd   = regexp.MustCompile(`redo done at ([0-9A-F]+/[0-9A-F]+)`)
	saysReady = regexp.MustCompile(`LOG: +database system is ready to accept connections`)
	saysShort = regexp.MustCompile(`FATAL: +recovery ended before configured recovery target was reached`)
	saysEarly = regexp.MustCompile(`FATAL: +requested recovery stop point is before consistent recovery point`)
)

// progress is what a server has said of its recovery.
type progress struct {
	mu           sync.Mutex
	end          string
	at           time.Time
	ready        bool
	short, early bool
}

// readLine takes in a line of the log, and says whether the time in it is a new one.
func (t *progress) readLine(line string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := saysEnd.FindStringSubmatch(line); found != nil {
		t.end = found[1]
	}
	t.ready = t.ready || saysReady.MatchString(line)
	t.short = t.short || saysShort.MatchString(line)
	t.early = t.early || saysEarly.MatchString(line)
	found := saysLast.FindStringSubmatch(line)
	if found == nil {
		return false
	}
	at, err := time.Parse("2006-01-02 15:04:05.999999-07", found[1])
	if err != nil || at.Equal(t.at) {
		return false
	}
	t.at = at.UTC()
	return true
}

func (t *progress) lastTransaction() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// isReady says whether the server takes connections.
func (t *progress) isReady() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready
}

// explainFailure explains what a recovery failed with.
func (t *progress) explainFailure(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || !t.short && !t.early {
		return err
	}
	return &Missed{Early: t.early, End: t.end, Last: t.at, Err: fmt.Errorf("the recovery did not come to its target: %w", err)}
}
