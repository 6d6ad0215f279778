package archiver

import (
	"context"
	"database/sql"
	"fmt"
	"time"

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
type sqlServer struct{ db *sql.DB }

// NewServer is the server of a connection.
func NewServer(db *sql.DB) Server { return sqlServer{db} }

func (s sqlServer) ListBinlogs(ctx context.Context) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, fmt.Errorf("list the binlogs: %w", err)
	}
	defer rows.Close() //nolint:errcheck // it was only read
	var names []string
	for rows.Next() {
		var name, size, encrypted string
		if err := rows.Scan(&name, &size, &encrypted); err != nil {
			return nil, fmt.Errorf("list the binlogs: %w", err)
		}
		names = append(names, name)
	}
	return names, rows.Err()
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
	_, err := s.db.ExecContext(ctx, "PURGE BINARY LOGS TO ?", file)
	return err
}
