package loginsight

import (
	"strconv"
	"strings"
	"time"
)

// mysqlCodes are the error codes of MySQL's text log, and their classes.
var mysqlCodes = map[string]string{
	"MY-011906": "MySQLDataCorrupted",
	"MY-012640": "MySQLDiskFull",
	"MY-000020": "MySQLDiskFull", // a binlog or a temporary file: the server waits
	"MY-000035": "MySQLDiskFull", // the same, with how often it tries
	"MY-012639": "MySQLStorageFailed",
	"MY-012592": "MySQLStorageFailed",
	"MY-013622": "MySQLStorageFailed",
	"MY-011495": "MySQLMajorityLost",
	"MY-011496": "MySQLMajorityLost", // with a limit, as Holdfast sets one
	"MY-011505": "MySQLMemberExpelled",
	"MY-011522": "MySQLMemberDiverged",
	"MY-011526": "MySQLMemberDiverged",
	"MY-010584": "MySQLReplicationFailed",
	"MY-010229": "MySQLCrashRecovery",
	"MY-013132": "MySQLTableFull",
	"MY-011493": "MySQLMemberUnreachable",
	"MY-011499": "MySQLMembersLeft",
	"MY-012985": "MySQLSemaphoreWait",
	"MY-012468": "MySQLDeadlock",
	"MY-010909": "MySQLConnectionClosed",
	"MY-011507": "MySQLPrimaryElected",
	"MY-011503": "MySQLGroupChanged",
	"MY-010931": "MySQLStarted",
	"MY-010910": "MySQLStopped",
}

var mysqlIndex = func() map[string]*Class {
	index := map[string]*Class{}
	for code, class := range mysqlCodes {
		index[code] = mustFind(mysqlClasses, class)
	}
	return index
}()

// mysqlCrash is what a server that ends by a signal writes after the time. It has no code. A
// failed assertion ends so, too.
const mysqlCrash = "UTC - mysqld got signal "

var mysqlCrashed = mustFind(mysqlClasses, "MySQLServerCrashed")

// ParseMySQL reads an entry of MySQL's text log: time, thread, level, code, subsystem and
// message. MySQL writes a space for each line feed of a message. Only the code is read.
func ParseMySQL(line string, now time.Time) (Event, Result) {
	at, rest, found := strings.Cut(line, " ")
	if !found || len(at) < len("2026-03-01T10:00:00Z") || len(at) > 40 {
		return Event{}, Unknown
	}
	when, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return Event{}, Unknown
	}
	if text, crashed := strings.CutPrefix(rest, mysqlCrash); crashed {
		return readMySQLCrash(text, when.UTC())
	}
	thread, rest, found := strings.Cut(rest, " ")
	if !found || !isDecimal(thread) {
		return Event{}, Unknown
	}
	level, rest, found := strings.Cut(rest, " ")
	switch level {
	case "[ERROR]", "[Warning]", "[Note]", "[System]":
	default:
		return Event{}, Unknown
	}
	const code = "[MY-000000] "
	if !found || len(rest) < len(code) || rest[0] != '[' || rest[len(code)-2:len(code)] != "] " {
		return Event{}, Unknown
	}
	class := mysqlIndex[rest[1:len(code)-2]]
	if class == nil {
		return Event{}, Unknown
	}
	return Event{Class: class, Time: when.UTC()}, Known
}

func readMySQLCrash(text string, when time.Time) (Event, Result) {
	number, ended := strings.CutSuffix(strings.TrimSpace(text), " ;")
	if signal, err := strconv.ParseUint(number, 10, 7); ended && err == nil {
		return Event{Class: mysqlCrashed, Time: when, Value: float64(signal)}, Known
	}
	return Event{}, Unknown
}

func isDecimal(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && len(s) < 21
}
