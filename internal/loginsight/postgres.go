package loginsight

import (
	"strings"
	"time"
)

// PostgresPrefix is log_line_prefix of PostgreSQL 14 to 18 as ParsePostgres reads it:
// time, process ID, SQLSTATE, query ID and kind of process. No part of it can be chosen
// by a client.
const PostgresPrefix = "%m [%p] %e %Q (%b) "

// kindOfProcess is what %b names, as far as rules differ.
type kindOfProcess uint16

const (
	client kindOfProcess = 1 << iota
	postmaster
	checkpointer
	autovacuum
	archiver
	startup
	walReceiver
	walSender
	otherProcess
	anyProcess = 1<<16 - 1
)

func kindOf(backendType string) kindOfProcess {
	switch backendType {
	case "client backend", "parallel worker", "not initialized", "dead-end client backend", "standalone backend":
		return client
	case "postmaster":
		return postmaster
	case "checkpointer":
		return checkpointer
	case "autovacuum worker", "autovacuum launcher":
		return autovacuum
	case "archiver":
		return archiver
	case "startup":
		return startup
	case "walreceiver":
		return walReceiver
	case "walsender":
		return walSender
	}
	return otherProcess
}

// level of an entry; higher ones are worse.
type level uint8

const (
	levelNone level = iota
	levelNotice
	levelLog
	levelWarning
	levelError
)

// levelOf reads what stands before ":  ". Fields of an entry are continued.
func levelOf(word string) (l level, continued, known bool) {
	switch word {
	case "LOG":
		return levelLog, false, true
	case "ERROR", "FATAL", "PANIC":
		return levelError, false, true
	case "WARNING":
		return levelWarning, false, true
	case "NOTICE", "INFO", "DEBUG", "DEBUG1", "DEBUG2", "DEBUG3", "DEBUG4", "DEBUG5":
		return levelNotice, false, true
	case "DETAIL", "HINT", "QUERY", "CONTEXT", "LOCATION", "BACKTRACE", "STATEMENT":
		return levelNone, true, true
	}
	return levelNone, false, false
}

// postgresEntry is the first line of an entry, in parts.
type postgresEntry struct {
	at       time.Time
	sqlstate string
	queryID  int64
	from     kindOfProcess
	level    level
	message  string
}

// ParsePostgres reads a line that begins with PostgresPrefix. PostgreSQL writes a tab
// at the start of each further line of a message, so no client can begin an entry.
func ParsePostgres(line string, now time.Time) (Event, Result) {
	if IsPostgresContinuation(line) {
		return Event{}, Continued
	}
	e, result := splitPostgres(line, now)
	if result != Known {
		return Event{}, result
	}
	r := findPostgresRule(e)
	if r == nil {
		return Event{}, Unknown
	}
	event := Event{Class: r.found, SQLSTATE: r.sqlstate, QueryID: e.queryID, Time: e.at}
	if r.from&client == 0 {
		event.QueryID = 0 // background processes run no statement
	}
	if r.capture != nil {
		if v, found := r.capture(e.message); found {
			event.Value = RoundValue(v)
		}
	}
	return event, Known
}

// IsPostgresContinuation says whether a line is a further one of the message before.
func IsPostgresContinuation(line string) bool { return len(line) > 0 && line[0] == '\t' }

// splitPostgres takes an entry apart, with no copy of the line.
func splitPostgres(line string, now time.Time) (postgresEntry, Result) {
	var e postgresEntry
	var ok bool
	rest := line
	if e.at, rest, ok = readTime(rest, now); !ok {
		return e, Unknown
	}
	if rest, ok = skipProcessID(rest); !ok {
		return e, Unknown
	}
	if len(rest) < 6 || rest[5] != ' ' || !isSQLSTATE(rest[:5]) {
		return e, Unknown
	}
	e.sqlstate, rest = rest[:5], rest[6:]
	if e.queryID, rest, ok = readQueryID(rest); !ok || !strings.HasPrefix(rest, "(") {
		return e, Unknown
	}
	backendType, rest, ok := strings.Cut(rest[1:], ") ")
	if !ok {
		return e, Unknown
	}
	e.from = kindOf(backendType)
	word, message, ok := strings.Cut(rest, ":  ")
	if !ok {
		return e, Unknown
	}
	var continued bool
	if e.level, continued, ok = levelOf(word); !ok {
		return e, Unknown
	}
	if continued {
		return e, Continued
	}
	// With log_error_verbosity=verbose, the SQLSTATE stands before the message, too.
	if len(message) > 7 && message[:5] == e.sqlstate && message[5:7] == ": " {
		message = message[7:]
	}
	e.message = message
	return e, Known
}

// readTime reads %m, such as 2026-03-01 10:00:00.123 UTC. A time of another zone than
// UTC is taken to be now.
func readTime(line string, now time.Time) (at time.Time, rest string, ok bool) {
	const form = "0000-00-00 00:00:00.000 "
	if len(line) < len(form)+4 {
		return now, line, false
	}
	var n [7]int
	field := 0
	for i := range len(form) {
		c := line[i]
		if form[i] != '0' {
			if c != form[i] {
				return now, line, false
			}
			field++
			continue
		}
		if c < '0' || c > '9' {
			return now, line, false
		}
		n[field] = n[field]*10 + int(c-'0')
	}
	zone, rest, ok := strings.Cut(line[len(form):], " ")
	if !ok || len(zone) > 10 {
		return now, line, false
	}
	if zone != "UTC" && zone != "GMT" {
		return now, rest, true
	}
	return time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], n[6]*int(time.Millisecond), time.UTC), rest, true
}

// skipProcessID skips "[123] ".
func skipProcessID(line string) (rest string, ok bool) {
	if !strings.HasPrefix(line, "[") {
		return line, false
	}
	i := 1
	for i < len(line) && line[i] >= '0' && line[i] <= '9' {
		i++
	}
	if i == 1 || i > 12 || !strings.HasPrefix(line[i:], "] ") {
		return line, false
	}
	return line[i+2:], true
}

func isSQLSTATE(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// readQueryID reads %Q: a signed number of 64 bits.
func readQueryID(line string) (id int64, rest string, ok bool) {
	negative := strings.HasPrefix(line, "-")
	i := 0
	if negative {
		i = 1
	}
	var n uint64
	begin := i
	for ; i < len(line) && line[i] >= '0' && line[i] <= '9'; i++ {
		n = n*10 + uint64(line[i]-'0')
	}
	if i == begin || i-begin > 19 || i >= len(line) || line[i] != ' ' {
		return 0, line, false
	}
	id = int64(n) //nolint:gosec // the lowest number of 64 bits is its own negative
	if negative {
		id = -id
	}
	return id, line[i+1:], true
}
