package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// trouble is what a replica's log says about why it cannot follow.
type trouble int

const (
	troubleNone trouble = iota
	// troubleCopy: only a new copy helps.
	troubleCopy
	// troubleHalf: so it is, for the primary has discarded the rest of half a
	// record. No log says it: see stall.
	troubleHalf
	// troubleDiverged: the data holds what the primary does not.
	troubleDiverged
	// troubleForeign: the primary is of another database system.
	troubleForeign
	// troubleRestart: the settings are below the primary's; a restart takes up
	// the new ones.
	troubleRestart
	// troubleStray: the newest timeline that the replica knows of did not come of
	// its own. Said once, its history files may be incomplete; said again, the
	// comparison with the primary decides.
	troubleStray
)

// troubles are the words of PostgreSQL 14 to 18.
var troubles = []struct {
	words   string
	trouble trouble
}{
	{"has already been removed", troubleCopy},
	{"can no longer get changes from replication slot", troubleCopy},
	{"can no longer access replication slot", troubleCopy},
	{"cannot read from physical replication slot", troubleCopy},
	{"is not in this server's history", troubleDiverged},
	{"is behind recovery timeline", troubleDiverged},
	{"before current recovery point", troubleDiverged},
	{"is not a child of this server's history", troubleDiverged},
	{"does not contain minimum recovery point", troubleDiverged},
	{"is not a child of database system timeline", troubleStray},
	{"is ahead of the WAL flush position", troubleDiverged},
	{"database system identifier differs between the primary and standby", troubleForeign},
	{"recovery has paused", troubleRestart},
}

// readTrouble reads one line of the server's log.
func readTrouble(line string) trouble {
	for _, t := range troubles {
		if strings.Contains(line, t.words) {
			return t.trouble
		}
	}
	return troubleNone
}

const (
	// proofTime is how long a replica must have received nothing before a line of
	// its log is believed: a log can hold any client's words.
	proofTime = 3 * time.Second
	// proofInterval is between two observations in that time.
	proofInterval = 300 * time.Millisecond
)

// troubleWatch hears the server's log, and proves what it says of a replica's
// troubles.
type troubleWatch struct {
	// reported carries troubles from the log; it holds one.
	reported chan trouble
	session  *server.Session
	// floors are the primary's settings when the run began, and readControl reads
	// pg_control as it is now.
	floors      map[string]int64
	readControl func(context.Context) (server.ControlData, error)
	// strays counts what the log says of timelines that are not the data's own;
	// the reader of the log's.
	strays int
}

// readLogLine hears a line of the server's log.
func (w *troubleWatch) readLogLine(line string) {
	if t := w.requireRepeated(readTrouble(line)); t != troubleNone {
		w.reportTrouble(t)
	}
}

// requireRepeated takes a trouble that may pass for one only when it is said again. What
// replaces data compares it with the primary's first.
func (w *troubleWatch) requireRepeated(t trouble) trouble {
	if t != troubleStray {
		return t
	}
	if w.strays++; w.strays < 2 {
		return troubleNone
	}
	return t
}

func (w *troubleWatch) reportTrouble(t trouble) {
	select {
	case w.reported <- t:
	default:
	}
}

// followTroubles sends one trouble once it is proven, and ends then or with ctx.
func (w *troubleWatch) followTroubles(ctx context.Context, proven chan<- trouble) {
	for {
		select {
		case <-ctx.Done():
			return
		case t := <-w.reported:
			if w.proveTrouble(ctx, t) {
				proven <- t
				return
			}
		}
	}
}

func (w *troubleWatch) proveTrouble(ctx context.Context, t trouble) bool {
	switch t {
	case troubleHalf:
		return true // it was watched for longer
	case troubleRestart:
		control, err := w.readControl(ctx)
		return err == nil && haveRisen(w.floors, control.Floors)
	}
	for end := time.Now().Add(proofTime); time.Now().Before(end); {
		if !clock.Sleep(ctx, proofInterval) || ctx.Err() != nil {
			return false
		}
		if observed, err := server.ObserveServer(ctx, w.session); err == nil && observed.Receiving {
			return false
		}
	}
	return true
}

// haveRisen says whether the primary's settings have risen since the replica
// started.
func haveRisen(before, after map[string]int64) bool {
	for name, floor := range after {
		if floor > before[name] {
			return true
		}
	}
	return false
}
