package recovery

import (
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
)

// ArchivedWAL is what was archived behind a copy.
type ArchivedWAL struct {
	// Command fetches a file of it: a restore_command.
	Command string
	// Timeline that is followed.
	Timeline uint32
	// Target is where the recovery ends: one of PostgreSQL's recovery_target_…,
	// with its value. Without, it ends with the WAL.
	Target, Value string
	// It is how far it is, by the time of the last transaction that is known.
	Report func(last time.Time)
}

func (l *ArchivedWAL) reportProgress(last time.Time) {
	if l != nil && l.Report != nil {
		l.Report(last)
	}
}

// recoverySettings are those of a recovery that goes on behind the copy, on a
// volume: the WAL that it fetches lies there until the next restart point, which also says how far it
// is.
func (l *ArchivedWAL) recoverySettings(volume diskspace.Space) map[string]string {
	if l == nil {
		return nil
	}
	s := map[string]string{
		"restore_command":          l.Command,
		"recovery_target_timeline": strconv.FormatUint(uint64(l.Timeline), 10),
		"recovery_target_action":   "promote",
		"max_wal_size":             settings.FormatMegabytes(settings.ClampValue(volume.Total/10, 64<<20, 16<<30)),
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
	// Early: the target lies before the end of the copy. Else the WAL ends
	// before it.
	Early bool
	// End of the WAL, and the time of its last transaction; zero without any.
	End  string
	Last time.Time
	Err  error
}

func (m *Missed) Error() string { return m.Err.Error() }

// Unwrap makes the error itself known.
func (m *Missed) Unwrap() error { return m.Err }
