package anomaly

// MostSignals is how many signals a detector takes: what it learns of them takes 55 KiB.
const MostSignals = 12

// Signal is one measurement of a member.
type Signal struct {
	// Name is a label of a metric. Engines that measure the same have the same name for it.
	Name string
	// Title and Unit describe it to a person.
	Title, Unit string
	// Kind of trouble that it shows.
	Kind Kind
	// Counter says that the measurement only rises, but for a reset. Its rate per second is
	// judged.
	Counter bool
	// Floor is how much makes no difference: a rise from nothing is judged against it.
	Floor float64
}

// Kind says what an unusual signal is about.
type Kind int

// The kinds.
const (
	// Load is the work that clients ask for.
	Load Kind = iota
	// Errors are requests that fail.
	Errors
	// Waits are requests and replicas that wait.
	Waits
)

const (
	perSecond      = "per second"
	bytesPerSecond = "bytes per second"
	busySeconds    = "seconds per second"
	mebibyte       = 1 << 20
)

// PostgresSignals are measured of a PostgreSQL member, in this order.
var PostgresSignals = []Signal{
	{Name: "commits", Title: "commits", Unit: perSecond, Counter: true, Floor: 2},
	{Name: "rollbacks", Title: "rollbacks", Unit: perSecond, Kind: Errors, Counter: true, Floor: 0.5},
	{Name: "rows_read", Title: "rows read", Unit: perSecond, Counter: true, Floor: 5000},
	{Name: "rows_written", Title: "rows written", Unit: perSecond, Counter: true, Floor: 50},
	{Name: "blocks_read", Title: "blocks read", Unit: perSecond, Counter: true, Floor: 200},
	{Name: "temporary_bytes", Title: "temporary files", Unit: bytesPerSecond, Counter: true, Floor: mebibyte},
	{Name: "log_bytes", Title: "WAL", Unit: bytesPerSecond, Counter: true, Floor: mebibyte / 4},
	{Name: "sessions", Title: "sessions", Floor: 10},
	{Name: "active_sessions", Title: "active sessions", Floor: 4},
	{Name: "lock_waits", Title: "sessions that wait for a lock", Kind: Waits, Floor: 5},
	{Name: "oldest_transaction", Title: "age of the oldest transaction", Unit: "seconds", Kind: Waits, Floor: 300},
	{Name: "replication_lag", Title: "replication lag", Unit: "seconds", Kind: Waits, Floor: 10},
}

// MySQLSignals are measured of a MySQL member, in this order.
var MySQLSignals = []Signal{
	{Name: "statements", Title: "statements", Unit: perSecond, Counter: true, Floor: 5},
	{Name: "commits", Title: "commits", Unit: perSecond, Counter: true, Floor: 2},
	{Name: "rollbacks", Title: "rollbacks", Unit: perSecond, Kind: Errors, Counter: true, Floor: 0.5},
	{Name: "refused_connections", Title: "refused connections", Unit: perSecond, Kind: Errors, Counter: true, Floor: 0.2},
	{Name: "rows_read", Title: "rows read", Unit: perSecond, Counter: true, Floor: 5000},
	{Name: "rows_written", Title: "rows written", Unit: perSecond, Counter: true, Floor: 50},
	{Name: "pages_read", Title: "pages read", Unit: perSecond, Counter: true, Floor: 100},
	{Name: "temporary_tables", Title: "temporary tables on disk", Unit: perSecond, Counter: true, Floor: 1},
	{Name: "log_bytes", Title: "redo log", Unit: bytesPerSecond, Counter: true, Floor: mebibyte / 4},
	{Name: "sessions", Title: "sessions", Floor: 10},
	{Name: "active_sessions", Title: "active sessions", Floor: 4},
	{Name: "lock_waits", Title: "row locks that are waited for", Kind: Waits, Floor: 5},
}

// EtcdSignals are measured of an etcd member, in this order.
var EtcdSignals = []Signal{
	{Name: "puts", Title: "keys written", Unit: perSecond, Counter: true, Floor: 2},
	{Name: "deletes", Title: "keys deleted", Unit: perSecond, Counter: true, Floor: 2},
	{Name: "ranges", Title: "reads", Unit: perSecond, Counter: true, Floor: 10},
	{Name: "received_bytes", Title: "bytes received of clients", Unit: bytesPerSecond, Counter: true, Floor: mebibyte / 16},
	{Name: "sent_bytes", Title: "bytes sent to clients", Unit: bytesPerSecond, Counter: true, Floor: mebibyte / 4},
	{Name: "watchers", Title: "watchers", Floor: 20},
	{Name: "pending_proposals", Title: "pending proposals", Kind: Waits, Floor: 5},
	{Name: "failed_proposals", Title: "failed proposals", Unit: perSecond, Kind: Errors, Counter: true, Floor: 0.1},
	{Name: "leader_changes", Title: "changes of the leader", Unit: perSecond, Kind: Errors, Counter: true, Floor: 0.02},
	{Name: "sync_time", Title: "time in syncs of the Raft log", Unit: busySeconds, Kind: Waits, Counter: true, Floor: 0.05},
	{Name: "commit_time", Title: "time in writes of the database", Unit: busySeconds, Kind: Waits, Counter: true, Floor: 0.05},
	{Name: "slow_applies", Title: "slow requests", Unit: perSecond, Kind: Waits, Counter: true, Floor: 0.2},
}
