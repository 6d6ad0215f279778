package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Session is one connection as the superuser over the socket. It is opened
// when it is needed, kept, and opened again when it broke.
type Session struct {
	dsn string

	mu   sync.Mutex
	conn *pgx.Conn
}

// NewSession is not connected yet: to the server that listens on a port in a
// directory, under a name.
func NewSession(runDir string, port int, name string) *Session {
	return &Session{dsn: socketDSN(runDir, port, name)}
}

// socketDSN connects to the server by its socket, under a name.
func socketDSN(runDir string, port int, name string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable application_name=%s", runDir, port, name)
}

// sessionSettings keep our statements out of the log, for one holds a
// password's verifier, away from other people's functions, and short.
var sessionSettings = map[string]string{
	"search_path":                         "pg_catalog",
	"log_statement":                       "none",
	"log_min_duration_statement":          "-1",
	"log_min_error_statement":             "panic",
	"statement_timeout":                   "5s",
	"lock_timeout":                        "2s",
	"idle_session_timeout":                "0",
	"idle_in_transaction_session_timeout": "5s",
	"synchronous_commit":                  "local",
	"default_transaction_read_only":       "off",
	"client_min_messages":                 "error",
}

// Do gives the connection to use, one at a time. An error that the server did
// not send closes it.
func (s *Session) Do(ctx context.Context, use func(context.Context, *pgx.Conn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil || s.conn.IsClosed() {
		conn, err := s.openConnection(ctx)
		if err != nil {
			return err
		}
		s.conn = conn
	}
	return use(ctx, s.conn)
}

func (s *Session) openConnection(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	for name, value := range sessionSettings {
		config.RuntimeParams[name] = value
	}
	config.ConnectTimeout = 2 * time.Second
	// Nothing is prepared: the statements are few and small, and a statement
	// prepared before a change of the catalog would fail once.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

// Close ends the session.
func (s *Session) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx)
	s.conn = nil
}
