package rewind

import (
	"fmt"
	"regexp"
	"strconv"
)

// report says what the rewind does now.
func (r *Rewinder) report(doing string) {
	if r.o.Report != nil {
		r.o.Report(doing)
	}
}

// copiedLine is how pg_rewind says how much it has copied.
var copiedLine = regexp.MustCompile(`^\s*\d+/\d+ kB \((\d+)%\) copied`)

// reportedStep is what a report of how much is copied moves by, in percent: a message
// that moved all the time would be one change after the other to those who watch it.
const reportedStep = 25

// readPart reads from a line of pg_rewind how much of what differs is copied.
func readPart(line string) (part string, is bool) {
	match := copiedLine.FindStringSubmatch(line)
	if match == nil {
		return "", false
	}
	percent, err := strconv.Atoi(match[1])
	switch done := percent / reportedStep * reportedStep; {
	case err != nil || done == 0:
		return "copies what differs", true
	case done >= 100:
		return "flushes what it has copied", true
	default:
		return fmt.Sprintf("copies what differs: more than %d%% is done", done), true
	}
}
