package postgres

import (
	"strings"
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
