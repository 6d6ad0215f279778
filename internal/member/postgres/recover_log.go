package postgres

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
)

// Log is what was archived behind a copy.
type Log struct {
	// Command fetches a file of it: a restore_command.
	Command string
	// Timeline that is followed.
	Timeline uint32
	// Target is where the recovery ends: one of PostgreSQL's recovery_target_…,
	// with its value. Without, it ends with the log.
	Target, Value string
	// Told is how far it is, by the time of the last transaction that is known.
	Told func(last time.Time)
}

func (l *Log) tell(last time.Time) {
	if l != nil && l.Told != nil {
		l.Told(last)
	}
}

// settings of a recovery that goes on behind the copy, on a volume: the log that
// it fetches lies there until the next restart point, which also says how far it
// is.
func (l *Log) settings(volume member.Space) map[string]string {
	if l == nil {
		return nil
	}
	s := map[string]string{
		"restore_command":          l.Command,
		"recovery_target_timeline": strconv.FormatUint(uint64(l.Timeline), 10),
		"recovery_target_action":   "promote",
		"max_wal_size":             megabytes(clamp(volume.Total/10, 64*mebibyte, 16*gibibyte)),
		"checkpoint_timeout":       "1min",
		"log_checkpoints":          "on",
		"timezone":                 "UTC", // of the times in the server's log
	}
	if l.Target != "" {
		s[l.Target] = l.Value
		s["recovery_target_inclusive"] = "on"
	}
	return s
}

// Missed says that a recovery did not come to its target, and why no other try
// does.
type Missed struct {
	// Early: the target lies before the end of the copy. Else the log ends
	// before it.
	Early bool
	// End of the log, and the time of its last transaction; zero without any.
	End  string
	Last time.Time
	Err  error
}

func (m *Missed) Error() string { return m.Err.Error() }

// Unwrap makes the error itself known.
func (m *Missed) Unwrap() error { return m.Err }

// What PostgreSQL says of a recovery.
var (
	saysLast  = regexp.MustCompile(`[Ll]ast completed transaction was at log time ([-0-9]+ [0-9:.]+[-+][0-9:]+)`)
	saysEnd   = regexp.MustCompile(`redo done at ([0-9A-F]+/[0-9A-F]+)`)
	saysReady = regexp.MustCompile(`LOG: +database system is ready to accept connections`)
	saysShort = regexp.MustCompile(`FATAL: +recovery ended before configured recovery target was reached`)
	saysEarly = regexp.MustCompile(`FATAL: +requested recovery stop point is before consistent recovery point`)
)

// tale is what a server has said of its recovery.
type tale struct {
	mu           sync.Mutex
	end          string
	at           time.Time
	ready        bool
	short, early bool
}

// hear a line of the log, and say whether the time in it is a new one.
func (t *tale) hear(line string) bool {
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

func (t *tale) last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// readied says whether the server takes connections.
func (t *tale) readied() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ready
}

// explain what a recovery failed with.
func (t *tale) explain(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || !t.short && !t.early {
		return err
	}
	return &Missed{Early: t.early, End: t.end, Last: t.at, Err: fmt.Errorf("the recovery did not come to its target: %w", err)}
}
