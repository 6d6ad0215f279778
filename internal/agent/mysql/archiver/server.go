package archiver

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Server is the running server, as far as the archiver needs it.
type Server interface {
	// ListBinlogs are the names of its binlogs, the one that it writes last.
	ListBinlogs(ctx context.Context) ([]string, error)
	// Observe says what the server has, and how it is set.
	Observe(ctx context.Context) (ServerState, error)
	// Rotate has the server end the file that it writes, and begin another one.
	Rotate(ctx context.Context) error
	// PurgeBefore removes all files before one.
	PurgeBefore(ctx context.Context, file string) error
}

// ServerState is what a server says of itself.
type ServerState struct {
	UUID string
	// Group is the name under which the group numbers transactions.
	Group    string
	Executed mysqlgtid.Set
	// Keep is how long binlogs are kept at least, for members that join; 0 for ever.
	Keep time.Duration
}

// sqlServer asks a server by SQL.
type sqlServer struct {
	db  *sql.DB
	dir string
}

// NewServer is the server of a connection, with its data directory.
func NewServer(db *sql.DB, dir string) Server { return sqlServer{db, dir} }

// indexName is the file in which the server lists its binlogs. It replaces that in one step.
const indexName = "binlog.index"

// ListBinlogs implements Server. The server itself would open each file to say its size.
func (s sqlServer) ListBinlogs(context.Context) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, indexName))
	if err != nil {
		return nil, fmt.Errorf("list the binlogs: %w", err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if name := strings.TrimSpace(line); name != "" {
			names = append(names, filepath.Base(name))
		}
	}
	return names, nil
}

func (s sqlServer) Observe(ctx context.Context) (o ServerState, err error) {
	var executed string
	var keep int64
	err = s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.server_uuid, @@GLOBAL.group_replication_group_name, @@GLOBAL.gtid_executed, @@GLOBAL.binlog_expire_logs_seconds").
		Scan(&o.UUID, &o.Group, &executed, &keep)
	if err != nil {
		return o, fmt.Errorf("ask for the transactions of the server: %w", err)
	}
	o.Keep = time.Duration(keep) * time.Second
	o.Executed, err = mysqlgtid.Parse(executed)
	return o, err
}

func (s sqlServer) Rotate(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "FLUSH BINARY LOGS")
	return err
}

func (s sqlServer) PurgeBefore(ctx context.Context, file string) error {
	// The statement takes no parameter.
	_, err := s.db.ExecContext(ctx, "PURGE BINARY LOGS TO "+accounts.Quote(file))
	return err
}
