package metrics

import (
	"strings"
	"sync/atomic"
)

// LoginFailures counts logins that failed. The database counts them nowhere, and writes a
// line for each: only the count leaves the agent, and neither text nor name.
type LoginFailures struct{ count atomic.Int64 }

// HearLine counts a line of the database's text log, if it is about a failed login. A
// client chooses its name, which stands before the level in a line: what follows the
// first level decides.
func (l *LoginFailures) HearLine(line string) {
	_, message, is := strings.Cut(line, " FATAL:  ")
	if !is {
		return
	}
	before, _, is := strings.Cut(message, "authentication failed for user \"")
	if is && len(before) <= longestMethod {
		l.count.Add(1)
		return
	}
	if strings.HasPrefix(message, "no pg_hba.conf entry for ") || strings.HasPrefix(message, "pg_hba.conf rejects connection for ") {
		l.count.Add(1)
	}
}

// longestMethod bounds the name of the method that stands before the words of a failure.
const longestMethod = 40

// Count is how many logins failed.
func (l *LoginFailures) Count() int64 { return l.count.Load() }
