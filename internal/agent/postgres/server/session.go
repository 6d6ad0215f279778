package server

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/puddle/v2"
)

const (
	// connectLimit is how long a caller waits for the connection to be opened.
	connectLimit = 2 * time.Second
	// openLimit is how long it is being opened, also when no caller waits for it: each
	// attempt costs the server a process, and where those start slowly, one that is
	// given up for the next makes them slower still.
	openLimit = 10 * time.Second
)

// Session is one connection as the superuser over the socket. It is opened
// when it is needed, kept, and opened again when it broke.
type Session struct {
	// turn is held by the caller that uses the connection, or waits for it.
	turn chan struct{}
	pool *puddle.Pool[*pgx.Conn]
}

// NewSession is not connected yet: to the server that listens on a port in a
// directory, under a name.
func NewSession(runDir string, port int, name string) *Session {
	dsn := socketDSN(runDir, port, name)
	pool, err := puddle.NewPool(&puddle.Config[*pgx.Conn]{
		Constructor: func(ctx context.Context) (*pgx.Conn, error) { return openConnection(ctx, dsn) },
		Destructor:  closeConnection,
		MaxSize:     1,
	})
	if err != nil {
		panic(err) // of a size that is not one
	}
	return &Session{turn: make(chan struct{}, 1), pool: pool}
}

// socketDSN connects to the server by its socket, under a name.
func socketDSN(runDir string, port int, name string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable application_name=%s", runDir, port, name)
}

// sessionSettings keep our statements out of the text log and out of
// pg_stat_statements, for one holds a password's verifier, away from other
// people's functions, and short. A server without that extension takes its
// setting as well.
var sessionSettings = map[string]string{
	"search_path":                         "pg_catalog",
	"log_statement":                       "none",
	"log_min_duration_statement":          "-1",
	"log_min_error_statement":             "panic",
	"pg_stat_statements.track":            "none",
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
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("another statement of this session runs: %w", ctx.Err())
	}
	conn, err := s.takeConnection(ctx)
	if err != nil {
		return fmt.Errorf("no connection to the database: %w", err)
	}
	defer conn.Release()
	return use(ctx, conn.Value())
}

// takeConnection takes the connection, and has one opened where there is none that works.
func (s *Session) takeConnection(ctx context.Context) (*puddle.Resource[*pgx.Conn], error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	for {
		conn, err := s.pool.Acquire(ctx)
		if err != nil || !conn.Value().IsClosed() {
			return conn, err
		}
		conn.Destroy()
	}
}

func openConnection(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	for name, value := range sessionSettings {
		config.RuntimeParams[name] = value
	}
	config.ConnectTimeout = openLimit
	// Nothing is prepared: the statements are few and small, and a statement
	// prepared before a change of the catalog would fail once.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

func closeConnection(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// Close ends the session for good.
func (s *Session) Close() { s.pool.Close() }
