package postgres

import "testing"

func TestTroubleIn(t *testing.T) {
	cases := []struct {
		line string
		want trouble
	}{
		{"FATAL:  could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed", troubleCopy},
		{"FATAL:  could not start WAL streaming: ERROR:  can no longer access replication slot \"holdfast_a_1\"", troubleCopy},
		{"FATAL:  highest timeline 1 of the primary is behind recovery timeline 2", troubleDiverged},
		{"FATAL:  database system identifier differs between the primary and standby", troubleForeign},
		{"LOG:  recovery has paused", troubleRestart},
		{"LOG:  started streaming WAL from primary at 0/4000000 on timeline 1", troubleNone},
	}
	for _, c := range cases {
		if got := readTrouble(c.line); got != c.want {
			t.Errorf("%q: %v, want %v", c.line, got, c.want)
		}
	}
}

// Words of a server whose history differs are never a reason to copy.
func TestTroubleOfHistories(t *testing.T) {
	for line, want := range map[string]trouble{
		"FATAL:  could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed":         troubleCopy,
		"DETAIL:  This server's history forked from timeline 1; requested starting point 0/3000000 on timeline 1 is not in this server's history": troubleDiverged,
		"FATAL:  highest timeline 1 of the primary is behind recovery timeline 2":                                                                 troubleDiverged,
		"LOG:  new timeline 2 forked off current database system timeline 1 before current recovery point 0/3000060":                              troubleDiverged,
		"FATAL:  requested timeline 2 is not a child of this server's history":                                                                    troubleDiverged,
		"FATAL:  requested timeline 2 does not contain minimum recovery point 0/3000060 on timeline 1":                                            troubleDiverged,
		"FATAL:  requested timeline 1 is not in this server's history":                                                                            troubleDiverged,
		"FATAL:  could not start WAL streaming: ERROR:  requested starting point 0/7000000 on timeline 2 is not in this server's history":         troubleDiverged,
		"LOG:  new timeline 3 is not a child of database system timeline 2":                                                                       troubleStray,
		// A replica says so when it follows its primary to the next timeline.
		"LOG:  primary server contains no more WAL on requested timeline 1":                                      troubleNone,
		"ERROR:  requested starting point 0/7000000 is ahead of the WAL flush position of this server 0/3000148": troubleDiverged,
	} {
		if got := readTrouble(line); got != want {
			t.Errorf("%q is %v, want %v", line, got, want)
		}
	}
}

// A timeline that did not come of the data's own is a trouble when it is said
// again: history files are fetched one by one.
func TestStrayTimelineIsATroubleWhenItIsSaidAgain(t *testing.T) {
	w := &troubleWatch{}
	for said, want := range []trouble{troubleNone, troubleStray, troubleStray} {
		if got := w.requireRepeated(readTrouble("LOG:  new timeline 3 is not a child of database system timeline 2")); got != want {
			t.Errorf("said %d times before, it is %v, want %v", said, got, want)
		}
	}
	if got := w.requireRepeated(readTrouble("FATAL:  requested timeline 57 is not in this server's history")); got != troubleDiverged {
		t.Errorf("another trouble is %v", got)
	}
}
