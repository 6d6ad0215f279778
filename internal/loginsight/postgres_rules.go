package loginsight

import "strings"

// postgresRule is one way in which PostgreSQL reports a class. Words are those of the
// releases 14 to 18, in English: Holdfast sets lc_messages to C.
type postgresRule struct {
	class string
	// from are the processes that may say it, and least the lowest level.
	from  kindOfProcess
	least level
	// sqlstate is the whole code; empty for any.
	sqlstate string
	// prefix and part must be in the message; empty for nothing.
	prefix, part string
	// capture reads the number; nil for none.
	capture func(message string) (float64, bool)

	found *Class
}

func behind(word string) func(string) (float64, bool) {
	return func(message string) (float64, bool) { return numberBehind(message, word) }
}

// postgresRules are tried in this order: the first that matches counts.
var postgresRules = []postgresRule{
	// What only one kind of process says.
	{class: "ServerProcessCrashed", from: postmaster, least: levelLog, part: " was terminated by signal ", capture: behind(" was terminated by signal ")},
	{class: "ProcessNotStarted", from: postmaster, least: levelLog, prefix: "could not fork "},
	{class: "ServerStarted", from: postmaster, least: levelLog, prefix: "database system is ready to accept "},
	{class: "ServerStopping", from: postmaster, least: levelLog, prefix: "received ", part: " shutdown request"},
	{class: "RestartPending", from: postmaster, least: levelLog, part: " cannot be changed without restarting the server"},
	{class: "CrashRecovery", from: startup, least: levelLog, prefix: "database system was not properly shut down"},
	{class: "ReplayPaused", from: startup, least: levelWarning, prefix: "hot standby is not possible because of insufficient parameter settings"},
	{class: "ReplayWaits", from: startup, least: levelLog, prefix: "recovery still waiting after ", capture: behind("recovery still waiting after ")},
	{class: "CheckpointsTooFrequent", from: checkpointer, least: levelLog, prefix: "checkpoints are occurring too frequently", capture: behind("too frequently (")},
	{class: "CheckpointCompleted", from: checkpointer | startup, least: levelLog, prefix: "checkpoint complete: ", capture: behind("total=")},
	{class: "CheckpointCompleted", from: checkpointer, least: levelLog, prefix: "restartpoint complete: ", capture: behind("total=")},
	{class: "ReplicationSlotInvalidated", from: checkpointer | startup | walReceiver, least: levelLog, prefix: "invalidating ", part: "slot "},
	{class: "ServerStopping", from: archiver, least: levelLog, prefix: "archive command failed with exit code 200"}, // the agent's answer when it stops
	{class: "ArchiveFailed", from: archiver, least: levelLog, prefix: "archive command failed with exit code ", capture: behind("exit code ")},
	{class: "ArchiveFailed", from: archiver, least: levelLog, prefix: "archive command was terminated "},
	{class: "ArchiveFailed", from: archiver, least: levelWarning, prefix: "archiving ", part: " failed too many times"},
	{class: "AutovacuumCancelled", from: autovacuum, least: levelError, sqlstate: "57014", prefix: "canceling autovacuum task"},
	{class: "AutovacuumRan", from: autovacuum, least: levelLog, prefix: "automatic "},
	{class: "WALMissing", from: walReceiver | walSender, least: levelLog, part: " has already been removed"},
	{class: "WALMissing", from: walReceiver | walSender, least: levelError, part: "can no longer access replication slot"},
	{class: "ReplicationTimeout", from: walSender, least: levelLog, prefix: "terminating walsender process due to replication timeout"},
	{class: "ReplicationInterrupted", from: walReceiver, least: levelLog, part: "could not connect to the primary server"},
	{class: "ReplicationInterrupted", from: walReceiver, least: levelLog, prefix: "could not receive data from WAL stream"},
	{class: "ReplicationInterrupted", from: walReceiver, least: levelLog, prefix: "could not send data to WAL stream"},
	{class: "ReplicationInterrupted", from: walReceiver, least: levelLog, prefix: "could not send end-of-streaming message to primary"},
	{class: "ReplicationInterrupted", from: walReceiver, least: levelLog, prefix: "terminating walreceiver due to timeout"},
	{class: "ReplicationInterrupted", from: walReceiver, least: levelLog, prefix: "replication terminated by primary server"},

	// A setting that waits for a restart makes the file "contain errors" as well, so that
	// line says nothing.
	{class: "ConfigurationRejected", from: postmaster, least: levelLog, sqlstate: "42704"},
	{class: "ConfigurationRejected", from: postmaster, least: levelLog, sqlstate: "22023"},
	{class: "ConfigurationRejected", from: postmaster, least: levelLog, sqlstate: "42601"},

	// What any process may say.
	{class: "DiskFull", from: anyProcess, least: levelLog, sqlstate: "53100"},
	{class: "DataCorrupted", from: anyProcess, least: levelWarning, sqlstate: "XX001"},
	{class: "DataCorrupted", from: anyProcess, least: levelWarning, sqlstate: "XX002"},
	{class: "StorageFailed", from: anyProcess, least: levelWarning, sqlstate: "58030"},
	{class: "StorageFailed", from: anyProcess, least: levelError, sqlstate: "58P01"},
	{class: "LockTableFull", from: anyProcess, least: levelError, sqlstate: "53200", prefix: "out of shared memory"},
	{class: "OutOfMemory", from: anyProcess, least: levelError, sqlstate: "53200"},
	{class: "OutOfFileDescriptors", from: anyProcess, least: levelLog, sqlstate: "53000"},
	{class: "TransactionIDsRunLow", from: anyProcess, least: levelWarning, part: " must be vacuumed within ", capture: behind(" must be vacuumed within ")},
	{class: "TransactionIDsRunLow", from: anyProcess, least: levelWarning, part: " must be vacuumed before "},
	{class: "OldestTransactionFar", from: client | autovacuum, least: levelWarning, prefix: "oldest xmin is far in the past"},
	{class: "OldestTransactionFar", from: client | autovacuum, least: levelWarning, prefix: "cutoff for removing and freezing tuples is far in the past"},
	{class: "OldestTransactionFar", from: client | autovacuum, least: levelWarning, prefix: "oldest multixact is far in the past"},
	{class: "OldestTransactionFar", from: client | autovacuum, least: levelWarning, prefix: "cutoff for freezing multixacts is far in the past"},
	{class: "CollationChanged", from: anyProcess, least: levelWarning, part: " has a collation version mismatch"},
	{class: "CollationChanged", from: anyProcess, least: levelWarning, prefix: "collation ", part: " has version mismatch"},
	{class: "InternalError", from: anyProcess, least: levelError, sqlstate: "XX000"},

	// What sessions of clients say.
	{class: "SlowStatement", from: client, least: levelLog, sqlstate: "00000", prefix: "duration: ", part: " ms  ", capture: behind("duration: ")},
	{class: "TemporaryFile", from: client, least: levelLog, sqlstate: "00000", prefix: "temporary file: path ", capture: lastSize},
	{class: "LockWait", from: client, least: levelLog, sqlstate: "00000", prefix: "process ", part: " still waiting for ", capture: lastMilliseconds},
	{class: "LockWait", from: client, least: levelLog, sqlstate: "00000", prefix: "process ", part: " acquired ", capture: lastMilliseconds},
	{class: "RecoveryConflict", from: client | walSender, least: levelError, part: " due to conflict with recovery"},
	{class: "SynchronousWaitCancelled", from: client, least: levelWarning, part: "wait for synchronous replication"},
	{class: "Deadlock", from: anyProcess, least: levelError, sqlstate: "40P01"},
	{class: "SerializationFailure", from: client, least: levelError, sqlstate: "40001"},
	{class: "LockTimeout", from: client, least: levelError, sqlstate: "55P03"},
	{class: "StatementTimeout", from: client, least: levelError, sqlstate: "57014", prefix: "canceling statement due to statement timeout"},
	{class: "ConnectionLost", from: client, least: levelError, sqlstate: "57014", prefix: "canceling authentication due to timeout"},
	{class: "StatementCancelled", from: client, least: levelError, sqlstate: "57014"},
	{class: "IdleInTransactionTimeout", from: client, least: levelError, sqlstate: "25P03"},
	{class: "TransactionTimeout", from: client, least: levelError, sqlstate: "25P04"},
	{class: "SessionTerminated", from: client, least: levelError, sqlstate: "57P05"},
	{class: "SessionTerminated", from: client, least: levelError, sqlstate: "57P01"},
	{class: "NotAccepting", from: client | walSender, least: levelError, sqlstate: "57P03"},
	{class: "TooManyConnections", from: client | walSender, least: levelError, sqlstate: "53300"},
	{class: "TemporaryFileLimit", from: client, least: levelError, sqlstate: "53400"},
	{class: "TransactionIDsExhausted", from: anyProcess, least: levelError, sqlstate: "54000", part: "not accepting commands"},
	{class: "LimitExceeded", from: client, least: levelError, sqlstate: "54000"},
	{class: "LimitExceeded", from: client, least: levelError, sqlstate: "54001"},
	{class: "LimitExceeded", from: client, least: levelError, sqlstate: "54011"},
	{class: "LimitExceeded", from: client, least: levelError, sqlstate: "54023"},
	{class: "PasswordFailed", from: client | walSender, least: levelError, sqlstate: "28P01"},
	{class: "LoginRejected", from: client | walSender, least: levelError, sqlstate: "28000"},
	{class: "LoginRejected", from: client | walSender, least: levelError, sqlstate: "3D000"},
	// What a client sends that gives up before its login is complete; 18 and later.
	{class: "ConnectionLost", from: client, least: levelLog, sqlstate: "08P01", prefix: "invalid length of cancel key"},
	{class: "TLSFailed", from: client, least: levelLog, sqlstate: "08P01"},
	{class: "ConnectionLost", from: client, least: levelLog, sqlstate: "08006"},
	{class: "ConnectionLost", from: client, least: levelLog, sqlstate: "08003"},
	{class: "PermissionDenied", from: client, least: levelError, sqlstate: "42501"},
	{class: "WriteOnReadOnly", from: client, least: levelError, sqlstate: "25006"},
	{class: "PreparedStatementMissing", from: client, least: levelError, sqlstate: "26000"},
	{class: "PreparedStatementMissing", from: client, least: levelError, sqlstate: "42P05"},
	{class: "AbortedTransactionUsed", from: client, least: levelError, sqlstate: "25P02"},
	{class: "RaisedByFunction", from: client, least: levelError, sqlstate: "P0001"},
	{class: "ConstraintViolated", from: client, least: levelError, sqlstate: "23502"},
	{class: "ConstraintViolated", from: client, least: levelError, sqlstate: "23503"},
	{class: "ConstraintViolated", from: client, least: levelError, sqlstate: "23505"},
	{class: "ConstraintViolated", from: client, least: levelError, sqlstate: "23514"},
	{class: "ConstraintViolated", from: client, least: levelError, sqlstate: "23P01"},
	{class: "InvalidStatement", from: client, least: levelError, sqlstate: "42601"},
	{class: "InvalidStatement", from: client, least: levelError, sqlstate: "42P01"},
	{class: "InvalidStatement", from: client, least: levelError, sqlstate: "42703"},
	{class: "InvalidStatement", from: client, least: levelError, sqlstate: "42883"},
	{class: "InvalidStatement", from: client, least: levelError, sqlstate: "42704"},
	{class: "InvalidStatement", from: client, least: levelError, sqlstate: "3F000"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "22001"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "22003"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "22007"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "22008"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "22012"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "22021"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "22P02"},
	{class: "InvalidData", from: client, least: levelError, sqlstate: "42804"},
}

// postgresIndex has the rules by SQLSTATE, and those of no SQLSTATE, each in order.
var postgresIndex, postgresAnyState = func() (map[string][]*postgresRule, []*postgresRule) {
	index := map[string][]*postgresRule{}
	var anyState []*postgresRule
	for i := range postgresRules {
		r := &postgresRules[i]
		r.found = mustFind(postgresClasses, r.class)
		if r.sqlstate == "" {
			anyState = append(anyState, r)
			continue
		}
		index[r.sqlstate] = append(index[r.sqlstate], r)
	}
	return index, anyState
}()

// findPostgresRule finds the rule of an entry; nil for none.
func findPostgresRule(e postgresEntry) *postgresRule {
	for _, r := range postgresAnyState {
		if r.matches(e) {
			return r
		}
	}
	for _, r := range postgresIndex[e.sqlstate] {
		if r.matches(e) {
			return r
		}
	}
	return nil
}

func (r *postgresRule) matches(e postgresEntry) bool {
	return e.from&r.from != 0 && e.level >= r.least && strings.HasPrefix(e.message, r.prefix) && strings.Contains(e.message, r.part)
}

// lastSize reads the size at the end of "temporary file: path "…", size 123".
func lastSize(message string) (float64, bool) {
	i := strings.LastIndex(message, ", size ")
	if i < 0 {
		return 0, false
	}
	return numberBehind(message[i:], ", size ")
}

// lastMilliseconds reads the time at the end of "process 1 … after 1000.123 ms".
func lastMilliseconds(message string) (float64, bool) {
	i := strings.LastIndex(message, " after ")
	if i < 0 {
		return 0, false
	}
	return numberBehind(message[i:], " after ")
}
