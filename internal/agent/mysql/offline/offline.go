// Package offline runs MySQL on data that is in no group, out of reach of clients and
// members: on a copy, before it is stored, and on one that is restored.
package offline

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Data is a data directory.
type Data struct {
	Programs server.Programs
	// Lock that the server inherits.
	Lock *volumelock.VolumeLock
	// Dir of the data, and RunDir for the socket and temporary files.
	Dir, RunDir string
	// Memory of the pod.
	Memory settings.Memory
}

// stopLimit is how long the server may take to shut down: it purges all that no
// transaction needs, and merges what waits.
const stopLimit = 2 * time.Hour

// redoCapacity is small: nothing is written but what recovery leaves.
const redoCapacity = 64 << 20

// Ended says that the server ended, or was not stopped in order. Why, its text log says.
type Ended struct {
	Reason string
	// Failed says that it exited by itself, with an error: it does not run on the data.
	// Otherwise it was killed, and may run the next time.
	Failed bool
}

func (e *Ended) Error() string { return "MySQL ended on the data: " + e.Reason }

// Run starts the server, calls do, and shuts the server down so that its data files are
// whole without its redo log. A client that reaches the socket may do anything.
func (d Data) Run(ctx context.Context, do func(ctx context.Context, db *sql.DB) error) error {
	return d.runServer(ctx, d.settings(), []string{"--skip-grant-tables", "--disable-log-bin"}, do)
}

func (d Data) settings() map[string]string {
	in := settings.Input{DataDir: d.Dir, RunDir: d.RunDir, Memory: d.Memory, Isolated: true, ServerID: 1}
	s := settings.ComputeSettings(in)
	for _, name := range []string{"log_bin", "binlog_expire_logs_seconds", "ssl_ca", "ssl_cert", "ssl_key", "report_host"} {
		delete(s, name)
	}
	// Their plugins are not loaded: MySQL would warn of each.
	maps.DeleteFunc(s, func(name, _ string) bool {
		return strings.HasPrefix(name, "group_replication_") || strings.HasPrefix(name, "clone_")
	})
	s["plugin_load_add"] = "auth_socket.so"
	s["log_replica_updates"] = "OFF"
	s["performance_schema"] = "OFF"
	s["innodb_redo_log_capacity"] = strconv.Itoa(redoCapacity)
	s["innodb_fast_shutdown"] = "0"
	return s
}

// State is what data says of itself.
type State struct {
	Version string
	// Executed are the transactions that it has, as MySQL writes them.
	Executed string
	// Tablespaces are the files of its tables, by their paths below the data directory.
	Tablespaces []string
}

// ReadState asks a server.
func ReadState(ctx context.Context, db *sql.DB) (s State, err error) {
	err = db.QueryRowContext(ctx, "SELECT VERSION(), @@GLOBAL.gtid_executed").Scan(&s.Version, &s.Executed)
	if err != nil {
		return s, fmt.Errorf("ask for the transactions of the data: %w", err)
	}
	s.Tablespaces, err = listTablespaces(ctx, db)
	return s, err
}
