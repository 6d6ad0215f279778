package loginsight

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/loginsight/loginsighttest"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// line is an entry of PostgreSQL's text log.
func line(process, sqlstate, text string) string {
	return "2026-03-01 10:00:00.123 UTC [42] " + sqlstate + " -7919 (" + process + ") " + text
}

// postgresSamples are entries as PostgreSQL 14 to 18 write them, by class.
var postgresSamples = []struct {
	class, line string
	value       float64
}{
	{"ServerProcessCrashed", line("postmaster", "00000", "LOG:  server process (PID 77) was terminated by signal 11: Segmentation fault"), 11},
	{"ServerProcessCrashed", line("postmaster", "00000", "LOG:  client backend (PID 77) was terminated by signal 9: Killed"), 9},
	{"ProcessNotStarted", line("postmaster", "00000", "LOG:  could not fork new process for connection: Resource temporarily unavailable"), 0},
	{"ServerStarted", line("postmaster", "00000", "LOG:  database system is ready to accept connections"), 0},
	{"ServerStarted", line("postmaster", "00000", "LOG:  database system is ready to accept read-only connections"), 0},
	{"ServerStopping", line("postmaster", "00000", "LOG:  received fast shutdown request"), 0},
	{"RestartPending", line("postmaster", "55P02", `LOG:  parameter "shared_buffers" cannot be changed without restarting the server`), 0},
	{"ConfigurationRejected", line("postmaster", "42704", `LOG:  unrecognized configuration parameter "no_such_setting" in file "/data/postgresql.auto.conf" line 1`), 0},
	{"ConfigurationRejected", line("postmaster", "22023", `LOG:  invalid value for parameter "work_mem": "8XB"`), 0},
	{"CrashRecovery", line("startup", "00000", "LOG:  database system was not properly shut down; automatic recovery in progress"), 0},
	{"ReplayPaused", line("startup", "22023", "WARNING:  hot standby is not possible because of insufficient parameter settings"), 0},
	{"ReplayWaits", line("startup", "00000", "LOG:  recovery still waiting after 1001.123 ms: recovery conflict on snapshot"), 1000},
	{"CheckpointsTooFrequent", line("checkpointer", "00000", "LOG:  checkpoints are occurring too frequently (1 second apart)"), 1},
	{"CheckpointsTooFrequent", line("checkpointer", "00000", "LOG:  checkpoints are occurring too frequently (12 seconds apart)"), 12},
	{"CheckpointCompleted", line("checkpointer", "00000", "LOG:  checkpoint complete: wrote 3 buffers (0.0%); 0 WAL file(s) added, 0 removed, 0 recycled; write=0.201 s, sync=0.005 s, total=0.216 s; sync files=2"), 0.22},
	{"CheckpointCompleted", line("checkpointer", "00000", "LOG:  restartpoint complete: wrote 3 buffers (0.0%); write=2.201 s, sync=0.005 s, total=2.216 s"), 2.2},
	{"ReplicationSlotInvalidated", line("checkpointer", "00000", `LOG:  invalidating obsolete replication slot "orders_1"`), 0},
	{"ServerStopping", line("archiver", "XX000", "FATAL:  archive command failed with exit code 200"), 0},
	{"ReplicationSlotInvalidated", line("checkpointer", "00000", `LOG:  invalidating slot "orders_1" because its restart_lsn 0/2000028 exceeds max_slot_wal_keep_size`), 0},
	{"ArchiveFailed", line("archiver", "00000", "LOG:  archive command failed with exit code 1"), 1},
	{"ArchiveFailed", line("archiver", "01000", `WARNING:  archiving write-ahead log file "000000010000000000000001" failed too many times, will try again later`), 0},
	{"AutovacuumCancelled", line("autovacuum worker", "57014", "ERROR:  canceling autovacuum task"), 0},
	{"AutovacuumRan", line("autovacuum worker", "00000", `LOG:  automatic vacuum of table "app.public.t": index scans: 0`), 0},
	{"WALMissing", line("walsender", "58P01", "ERROR:  requested WAL segment 000000010000000000000001 has already been removed"), 0},
	{"WALMissing", line("walreceiver", "08P01", "FATAL:  could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000001 has already been removed"), 0},
	{"WALMissing", line("walsender", "55000", `ERROR:  can no longer access replication slot "holdfast_orders_1"`), 0},
	{"WALMissing", line("walreceiver", "08P01", `FATAL:  could not start WAL streaming: ERROR:  can no longer access replication slot "holdfast_orders_1"`), 0},
	{"ReplicationTimeout", line("walsender", "00000", "LOG:  terminating walsender process due to replication timeout"), 0},
	{"ReplicationInterrupted", line("walreceiver", "08006", "FATAL:  could not connect to the primary server: connection to server failed"), 0},
	{"ReplicationInterrupted", line("walreceiver", "08006", `FATAL:  streaming replication receiver "orders_1" could not connect to the primary server: no`), 0},
	{"ReplicationInterrupted", line("walreceiver", "08006", "FATAL:  could not receive data from WAL stream: server closed the connection unexpectedly"), 0},
	{"ReplicationInterrupted", line("walreceiver", "08006", "FATAL:  could not send end-of-streaming message to primary: SSL connection has been closed unexpectedly"), 0},
	{"ReplicationInterrupted", line("walreceiver", "00000", "LOG:  replication terminated by primary server"), 0},
	{"DiskFull", line("client backend", "53100", `ERROR:  could not extend file "base/5/16384": No space left on device`), 0},
	{"DiskFull", line("checkpointer", "53100", `PANIC:  could not write to file "pg_wal/xlogtemp.1": No space left on device`), 0},
	{"DataCorrupted", line("client backend", "XX001", "ERROR:  invalid page in block 0 of relation base/5/16384"), 0},
	{"DataCorrupted", line("client backend", "XX002", `ERROR:  index "t_pkey" contains unexpected zero page at block 3`), 0},
	{"StorageFailed", line("checkpointer", "58030", `PANIC:  could not fsync file "base/5/16384": Input/output error`), 0},
	{"StorageFailed", line("client backend", "58P01", `ERROR:  could not open file "base/5/16384": No such file or directory`), 0},
	{"LockTableFull", line("client backend", "53200", "ERROR:  out of shared memory"), 0},
	{"OutOfMemory", line("client backend", "53200", "ERROR:  out of memory"), 0},
	{"OutOfFileDescriptors", line("client backend", "53000", `ERROR:  could not open file "base/5/1": Too many open files`), 0},
	{"TransactionIDsRunLow", line("autovacuum worker", "01000", `WARNING:  database "app" must be vacuumed within 39999999 transactions`), 4e7},
	{"TransactionIDsExhausted", line("client backend", "54000", `ERROR:  database is not accepting commands that assign new transaction IDs to avoid wraparound data loss in database "app"`), 0},
	{"OldestTransactionFar", line("client backend", "01000", "WARNING:  cutoff for removing and freezing tuples is far in the past"), 0},
	{"OldestTransactionFar", line("client backend", "01000", "WARNING:  oldest xmin is far in the past"), 0},
	{"OldestTransactionFar", line("autovacuum worker", "01000", "WARNING:  oldest multixact is far in the past"), 0},
	{"OldestTransactionFar", line("autovacuum worker", "01000", "WARNING:  cutoff for freezing multixacts is far in the past"), 0},
	{"CollationChanged", line("client backend", "01000", `WARNING:  database "app" has a collation version mismatch`), 0},
	{"InternalError", line("client backend", "XX000", "ERROR:  cache lookup failed for relation 16384"), 0},
	{"SlowStatement", line("client backend", "00000", "LOG:  duration: 1234.567 ms  statement: select pg_sleep(1)"), 1200},
	{"SlowStatement", line("client backend", "00000", "LOG:  duration: 12.500 ms  execute <unnamed>: select 1"), 13},
	{"TemporaryFile", line("client backend", "00000", `LOG:  temporary file: path "base/pgsql_tmp/pgsql_tmp42.0", size 14016512`), 1.4e7},
	{"LockWait", line("client backend", "00000", "LOG:  process 42 still waiting for ShareLock on transaction 745 after 1000.123 ms"), 1000},
	{"LockWait", line("client backend", "00000", "LOG:  process 42 acquired ShareLock on transaction 745 after 5210.001 ms"), 5200},
	{"RecoveryConflict", line("client backend", "40001", "ERROR:  canceling statement due to conflict with recovery"), 0},
	{"SynchronousWaitCancelled", line("client backend", "01000", "WARNING:  canceling wait for synchronous replication due to user request"), 0},
	{"Deadlock", line("client backend", "40P01", "ERROR:  deadlock detected"), 0},
	{"SerializationFailure", line("client backend", "40001", "ERROR:  could not serialize access due to concurrent update"), 0},
	{"LockTimeout", line("client backend", "55P03", "ERROR:  canceling statement due to lock timeout"), 0},
	{"StatementTimeout", line("client backend", "57014", "ERROR:  canceling statement due to statement timeout"), 0},
	{"StatementCancelled", line("client backend", "57014", "ERROR:  canceling statement due to user request"), 0},
	{"IdleInTransactionTimeout", line("client backend", "25P03", "FATAL:  terminating connection due to idle-in-transaction timeout"), 0},
	{"TransactionTimeout", line("client backend", "25P04", "FATAL:  terminating connection due to transaction timeout"), 0},
	{"SessionTerminated", line("client backend", "57P01", "FATAL:  terminating connection due to administrator command"), 0},
	{"SessionTerminated", line("client backend", "57P05", "FATAL:  terminating connection due to idle-session timeout"), 0},
	{"NotAccepting", line("client backend", "57P03", "FATAL:  the database system is starting up"), 0},
	{"TooManyConnections", line("client backend", "53300", "FATAL:  sorry, too many clients already"), 0},
	{"TemporaryFileLimit", line("client backend", "53400", "ERROR:  temporary file size exceeds temp_file_limit (1024kB)"), 0},
	{"LimitExceeded", line("client backend", "54001", "ERROR:  stack depth limit exceeded"), 0},
	{"PasswordFailed", line("client backend", "28P01", `FATAL:  password authentication failed for user "app"`), 0},
	{"LoginRejected", line("client backend", "28000", `FATAL:  role "nouser" does not exist`), 0},
	{"LoginRejected", line("client backend", "3D000", `FATAL:  database "nodb" does not exist`), 0},
	{"TLSFailed", line("not initialized", "08P01", "LOG:  could not accept SSL connection: EOF detected"), 0},
	{"PermissionDenied", line("client backend", "42501", "ERROR:  permission denied for table t"), 0},
	{"WriteOnReadOnly", line("client backend", "25006", "ERROR:  cannot execute INSERT in a read-only transaction"), 0},
	{"PreparedStatementMissing", line("client backend", "26000", `ERROR:  prepared statement "s1" does not exist`), 0},
	{"ConnectionLost", line("client backend", "08006", "LOG:  could not receive data from client: Connection reset by peer"), 0},
	{"ConnectionLost", line("not initialized", "08P01", "LOG:  invalid length of cancel key in cancel request packet"), 0},
	{"ConnectionLost", line("client backend", "57014", "FATAL:  canceling authentication due to timeout"), 0},
	{"ConstraintViolated", line("client backend", "23505", `ERROR:  duplicate key value violates unique constraint "t_pkey"`), 0},
	{"InvalidData", line("client backend", "22012", "ERROR:  division by zero"), 0},
	{"InvalidStatement", line("client backend", "42601", `ERROR:  syntax error at or near "selec"`), 0},
	{"InvalidStatement", line("client backend", "42601", `ERROR:  42601: syntax error at or near "selec"`), 0},
	{"AbortedTransactionUsed", line("client backend", "25P02", "ERROR:  current transaction is aborted, commands ignored until end of transaction block"), 0},
	{"RaisedByFunction", line("client backend", "P0001", "ERROR:  out of stock"), 0},
}

var etcdSamples = []struct {
	class, line string
	value       float64
}{
	{"EtcdDataDiffers", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"found different hash values from remote peer"}`, 0},
	{"EtcdDataDiffers", `{"level":"error","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"Detected compaction hash mismatch"}`, 0},
	{"EtcdQuorumLost", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","logger":"raft","caller":"x","msg":"8e9e05c52164694d stepped down to follower since quorum is not active"}`, 0},
	{"EtcdLeaderLost", `{"level":"info","ts":"2026-03-01T10:00:00.1Z","logger":"raft","caller":"x","msg":"raft.node: 8e9e05c52164694d lost leader 8e9e05c52164694d at term 3"}`, 0},
	{"EtcdLeaderElected", `{"level":"info","ts":"2026-03-01T10:00:00.123456+0100","logger":"raft","caller":"x","msg":"raft.node: 8e9e05c52164694d elected leader 8e9e05c52164694d at term 2"}`, 0},
	{"EtcdElection", `{"level":"info","ts":"2026-03-01T10:00:00.1Z","logger":"raft","caller":"x","msg":"8e9e05c52164694d is starting a new election at term 1"}`, 0},
	{"EtcdClockDrift", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"prober found high clock drift","clock-drift":"1.123978766s","rtt":"15ms"}`, 1100},
	{"EtcdDiskSlow", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"slow fdatasync","took":"1.263337456s","expected-duration":"1s"}`, 1300},
	{"EtcdHeartbeatLate", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"leader failed to send out heartbeat on time; took too long, leader is overloaded likely from slow disk","to":"63b7","heartbeat-interval":"100ms","expected-duration":"200ms","exceeded-duration":"61.150187ms"}`, 61},
	{"EtcdReadIndexLate", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"waiting for ReadIndex response took too long, retrying","sent-request-id":1,"retry-timeout":"500ms"}`, 0},
	{"EtcdSlowApply", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"apply request took too long","took":"123.456ms","expected-duration":"100ms","prefix":"","request":"x","response":"y"}`, 120},
	{"EtcdApplyFailed", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"failed to apply request","took":"26.1µs","request":"x","error":"y"}`, 0.026},
	{"EtcdPeerUnreachable", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"prober detected unhealthy status","rtt":"0s","error":"dial tcp"}`, 0},
	{"EtcdPeerOverloaded", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"dropped internal Raft message since sending buffer is full"}`, 0},
	{"EtcdTLSRejected", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"rejected connection on client endpoint","remote-addr":"127.0.0.1:1","server-name":"","error":"EOF"}`, 0},
	{"EtcdSlowRequest", `{"level":"warn","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"request stats","time spent":"310.5ms","request content":"key:\"k\""}`, 310},
	{"EtcdCompacted", `{"level":"info","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"finished scheduled compaction","compact-revision":5,"took":"1.5ms"}`, 1.5},
	{"EtcdDefragmented", `{"level":"info","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"finished defragmenting directory","took":"15ms"}`, 15},
	{"EtcdStarted", `{"level":"info","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"ready to serve client requests"}`, 0},
	{"EtcdStopping", `{"level":"info","ts":"2026-03-01T10:00:00.1Z","caller":"x","msg":"received signal; shutting down","signal":"terminated"}`, 0},
}

// Every class has an entry of the database by which it is found, with its number.
func TestEveryClassIsFound(t *testing.T) {
	check := func(parse Parser, class, text string, value float64) {
		t.Helper()
		event, result := parse(text, now)
		if result != Known || event.Class.Name != class || event.Value != value {
			t.Errorf("%s\n\tis %v %+v, not %s with %v", text, result, event, class, value)
		}
		if result == Known && event.Value != 0 && event.Class.Unit == "" {
			t.Errorf("%s has a number and no unit", class)
		}
		if want := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC); result == Known && event.Time.Sub(want).Abs() > time.Hour+time.Second {
			t.Errorf("%s: its time is %s", text, event.Time)
		}
	}
	seen := map[string]bool{"EtcdAlarmRaised": true} // the agent reads it in etcd's status
	for _, s := range postgresSamples {
		check(ParsePostgres, s.class, s.line, s.value)
		seen[s.class] = true
	}
	for _, s := range etcdSamples {
		check(ParseEtcd, s.class, s.line, s.value)
		seen[s.class] = true
	}
	check(ParseMySQL, "MySQLServerCrashed", "2026-03-01T10:00:00Z UTC - mysqld got signal 11 ;", 11)
	seen["MySQLServerCrashed"] = true
	for code, class := range mysqlCodes {
		check(ParseMySQL, class, "2026-03-01T10:00:00.123456Z 0 [ERROR] ["+code+"] [Server] text", 0)
		seen[class] = true
	}
	for _, e := range []Engine{PostgreSQL, MySQL, Etcd} {
		for _, c := range ListClasses(e) {
			if !seen[c.Name] {
				t.Errorf("no sample is of class %s", c.Name)
			}
			if FindClass(c.Name) != c {
				t.Errorf("%s is found as another class", c.Name)
			}
			if c.Meaning == "" || c.Remedy == "" || c.Severity.Rank() == len(severities) {
				t.Errorf("%s is incomplete", c.Name)
			}
			if len(c.Name) > 40 {
				t.Errorf("%s is longer than a status takes", c.Name)
			}
		}
	}
	if n := len(postgresClasses); n < 40 {
		t.Errorf("there are only %d classes of PostgreSQL", n)
	}
}

func TestPostgresPrefixIsRead(t *testing.T) {
	event, result := ParsePostgres(line("client backend", "40P01", "ERROR:  deadlock detected"), now)
	want := Event{Class: FindClass("Deadlock"), SQLSTATE: "40P01", QueryID: -7919, Time: time.Date(2026, 3, 1, 10, 0, 0, 123e6, time.UTC)}
	if result != Known || event != want {
		t.Errorf("%v %+v", result, event)
	}
	event, _ = ParsePostgres(strings.Replace(line("client backend", "40P01", "ERROR:  x"), " UTC ", " CEST ", 1), now)
	if !event.Time.Equal(now) {
		t.Errorf("a time of an unknown zone: %s", event.Time)
	}
	for text, want := range map[string]Result{
		// The prefix of earlier releases, and others that a user may declare.
		"2026-03-01 10:00:00.123 UTC [42] app@app ERROR:  deadlock detected": Unknown,
		"2026-03-01 10:00:00.123 UTC [42] ERROR:  deadlock detected":         Unknown,
		"ERROR:  deadlock detected":                                          Unknown,
		"":                                                                   Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 40P01 0 (client backend) ERROR: one space":                                                            Unknown,
		"2026-03-01 10:00:00.123 UTC [4x] 40P01 0 (client backend) ERROR:  x":                                                                   Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 40p01 0 (client backend) ERROR:  x":                                                                   Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 40P01 99999999999999999999 (client backend) ERROR:  x":                                                Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 40P01 -9223372036854775808 (client backend) ERROR:  x":                                                Known,
		"2026-03-01 10:00:00.123 UTC [42] 40P01 0 (client backend) DETAIL:  Process 1 waits for":                                                Continued,
		"2026-03-01 10:00:00.123 UTC [42] 40P01 0 (client backend) STATEMENT:  update t":                                                        Continued,
		"\t2026-03-01 10:00:00.123 UTC [42] 40P01 0 (client backend) ERROR:  deadlock detected":                                                 Continued,
		"2026-03-01 10:00:00.123 UTC [42] 00000 0 (client backend) LOG:  duration: 5.000 ms":                                                    Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 40P01 0 (client backend) DEBUG1:  deadlock detected":                                                  Unknown,
		"2026-03-01 10:00:00.123 UTC [42] F0000 0 (postmaster) LOG:  configuration file \"x\" contains errors; unaffected changes were applied": Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 00000 0 (client backend) LOG:  replication terminated by primary server":                              Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 00000 0 (checkpointer) LOG:  duration: 5 ms  statement: x":                                            Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 00000 0 (walreceiver) LOG:  replication terminated by primary server":                                 Known,
		// Holdfast pauses replay itself while a member changes its role.
		"2026-03-01 10:00:00.123 UTC [42] 00000 0 (startup) LOG:  recovery has paused":                Unknown,
		"2026-03-01 10:00:00.123 UTC [42] 23999 0 (client backend) ERROR:  an SQLSTATE of a function": Unknown,
	} {
		if _, got := ParsePostgres(text, now); got != want {
			t.Errorf("%q is %v, not %v", text, got, want)
		}
	}
}

// What only a process of the server says, no client can say.
func TestClientsCannotSpeakForServerProcesses(t *testing.T) {
	tried := 0
	for _, s := range postgresSamples {
		e, _ := splitPostgres(s.line, now)
		if r := findPostgresRule(e); r == nil || r.from&client != 0 {
			continue
		}
		tried++
		_, text, _ := strings.Cut(s.line, ") ")
		for _, process := range []string{"client backend", "parallel worker", "not initialized"} {
			if event, result := ParsePostgres(line(process, "00000", text), now); result == Known {
				t.Errorf("a client's %q is %s", text, event.Class.Name)
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d samples are of server processes", tried)
	}
}

func TestRoundValue(t *testing.T) {
	for v, want := range map[float64]float64{1234.567: 1200, 0.0261: 0.026, 99.6: 100, 5: 5, 0: 0, -3: 0, 4111111111111111: 4100000000000000, 12: 12, math.NaN(): 0, math.Inf(1): 0, 1e-9: 0} {
		if got := RoundValue(v); got != want {
			t.Errorf("%v is rounded to %v", v, got)
		}
	}
}

func TestRing(t *testing.T) {
	r := NewRing()
	if r.Revision() != "" || len(r.Report()) != 0 {
		t.Error("an empty ring reports something")
	}
	deadlock, slow, started := FindClass("Deadlock"), FindClass("SlowStatement"), FindClass("ServerStarted")
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	r.Add(Event{Class: started, Time: at(0)})
	if r.Revision() != "" {
		t.Error("a notice is reported in a status")
	}
	r.Add(Event{Class: deadlock, SQLSTATE: "40P01", QueryID: 7, Time: at(1)})
	first := r.Revision()
	r.Add(Event{Class: slow, QueryID: 7, Value: 100, Time: at(2)})
	r.Add(Event{Class: slow, QueryID: 8, Value: 300, Time: at(4)})
	r.Add(Event{Class: slow, QueryID: 8, Value: 200, Time: at(3)})
	second := r.Revision()
	if first == "" || second == first {
		t.Error("a new class is no new revision")
	}
	got := r.Report()
	if len(got) != 3 || got[0].Class != "SlowStatement" || got[1].Class != "Deadlock" || got[2].Class != "ServerStarted" {
		t.Fatalf("%+v", got)
	}
	s := got[0]
	if s.Count != 3 || s.Largest != 300 || s.Latest != 200 || !s.First.Equal(at(2)) || !s.Last.Equal(at(4)) || len(s.Statements) != 2 || s.Statements[0].QueryID != 8 || s.Statements[0].Count != 2 {
		t.Errorf("%+v", s)
	}
	if d := got[1]; !slices.Equal(d.SQLStates, []string{"40P01"}) {
		t.Errorf("%+v", d)
	}
	// Counts in a steady state do not make revisions: only twice as many do.
	r.Add(Event{Class: slow, QueryID: 9, Time: at(5)})
	fourth := r.Revision()
	r.Add(Event{Class: slow, QueryID: 9, Time: at(6)})
	if fourth == second || r.Revision() != fourth {
		t.Error("of counts 3, 4 and 5, the second alone is a new revision")
	}
}

func TestRingIsBounded(t *testing.T) {
	r := NewRing()
	class := FindClass("SlowStatement")
	for i := range 3 * ringEntries {
		r.Add(Event{Class: class, QueryID: int64(i + 1), Time: now.Add(time.Duration(i) * time.Second)})
	}
	got := r.Report()
	if r.Len() != ringEntries || len(r.entries) != ringEntries {
		t.Errorf("%d entries, %d by key", r.Len(), len(r.entries))
	}
	if got[0].Count != 3*ringEntries || len(got[0].Statements) != mostStatements {
		t.Errorf("%d events with %d statements", got[0].Count, len(got[0].Statements))
	}
}

// No canary that a client puts into a text log, wherever it can, is in what is reported.
func TestNoCanaryIsKept(t *testing.T) {
	for _, e := range []struct {
		parse Parser
		lines func(string) []string
	}{{ParsePostgres, loginsighttest.PostgresLines}, {ParseEtcd, loginsighttest.EtcdLines}, {ParseMySQL, loginsighttest.MySQLLines}} {
		ring := NewRing()
		known := 0
		canaries := loginsighttest.Canaries(200)
		for _, canary := range canaries {
			for _, text := range e.lines(canary) {
				for part := range strings.SplitSeq(text, "\n") {
					if event, result := e.parse(part, now); result == Known {
						known++
						ring.Add(event)
					}
				}
			}
		}
		if known < len(canaries) {
			t.Errorf("only %d lines with canaries are of a class: the test shows nothing", known)
		}
		text, err := json.Marshal(ring.Report())
		if err != nil {
			t.Fatal(err)
		}
		report := string(text) + ring.Revision()
		for _, canary := range canaries {
			if strings.Contains(report, canary) || strings.Contains(strings.ToUpper(report), strings.ToUpper(canary)) {
				t.Errorf("canary %s is in %s", canary, report)
			}
			if len(canary) == 16 && strings.Contains(report, canary[:6]) {
				t.Errorf("the beginning of number %s is in %s", canary, report)
			}
		}
		checkReport(t, ring)
	}
}

var sqlstates = func() map[string]bool {
	all := map[string]bool{}
	for _, r := range postgresRules {
		all[r.sqlstate] = true
	}
	return all
}()

var twoDigits = regexp.MustCompile(`^0*\.?0*[0-9]?\.?[0-9]?0*(\.0*)?$`)

// checkReport checks that each text in a report is of the whitelist.
func checkReport(t *testing.T, ring *Ring) {
	t.Helper()
	for _, i := range ring.Report() {
		class := FindClass(i.Class)
		if class == nil || i.Severity != string(class.Severity) || i.Unit != string(class.Unit) {
			t.Errorf("a class that is not in the whitelist: %+v", i)
		}
		for _, state := range i.SQLStates {
			if !sqlstates[state] {
				t.Errorf("SQLSTATE %q is not in the whitelist", state)
			}
		}
		for _, v := range []float64{i.Largest, i.Latest} {
			if text := fmt.Sprintf("%f", v); !twoDigits.MatchString(strings.TrimLeft(text, "0")) && !twoDigits.MatchString(text) {
				t.Errorf("number %s has more than two digits", text)
			}
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range postgresSamples {
		f.Add(s.line)
	}
	for _, s := range etcdSamples {
		f.Add(s.line)
	}
	for _, canary := range loginsighttest.Canaries(4) {
		for _, text := range slices.Concat(loginsighttest.PostgresLines(canary), loginsighttest.EtcdLines(canary), loginsighttest.MySQLLines(canary)) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		ring := NewRing()
		for _, parse := range []Parser{ParsePostgres, ParseEtcd, ParseMySQL} {
			event, result := parse(text, now)
			if (result == Known) != (event.Class != nil) {
				t.Fatalf("%v with %+v", result, event)
			}
			if result == Known {
				ring.Add(event)
			}
			if strings.HasPrefix(text, "\t") && result == Known {
				t.Errorf("a further line of a message is an entry: %q", text)
			}
		}
		checkReport(t, ring)
	})
}

// benchmarkLines is a mix of a busy server: mostly statements with their fields.
func benchmarkLines() []string {
	var lines []string
	for i, s := range postgresSamples {
		lines = append(lines, s.line, line("client backend", "42601", "STATEMENT:  "+strings.Repeat("select * from orders where id = 42; ", i%8+1)),
			line("client backend", "00000", "LOG:  connection authorized: user=app database=app SSL enabled"))
	}
	return lines
}

func BenchmarkPostgres(b *testing.B) {
	lines := benchmarkLines()
	ring := NewRing()
	n := 0
	for b.Loop() {
		if event, result := ParsePostgres(lines[n%len(lines)], now); result == Known {
			event.QueryID = int64(n) // the worst case: a new entry for each
			ring.Add(event)
		}
		n++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkEtcd(b *testing.B) {
	ring := NewRing()
	n := 0
	for b.Loop() {
		if event, result := ParseEtcd(etcdSamples[n%len(etcdSamples)].line, now); result == Known {
			ring.Add(event)
		}
		n++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

func BenchmarkMySQL(b *testing.B) {
	lines := loginsighttest.MySQLLines("x")
	ring := NewRing()
	n := 0
	for b.Loop() {
		if event, result := ParseMySQL(lines[n%len(lines)], now); result == Known {
			ring.Add(event)
		}
		n++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
