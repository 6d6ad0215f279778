package server

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// checkLimit is how long a new connection may take to be answered: a server that is short
// of CPU time accepts slowly, and is not hung.
const checkLimit = 20 * time.Second

// ConnectionCheck opens new connections, one at a time, as a client does.
type ConnectionCheck struct {
	base    context.Context //nolint:containedctx // an attempt goes on when who asked waits no longer
	runDir  string
	port    int
	attempt chan error // that was begun and not answered yet, or nil
}

// NewConnectionCheck checks the server that listens on a port in a directory, until
// ctx ends.
func NewConnectionCheck(ctx context.Context, runDir string, port int) *ConnectionCheck {
	return &ConnectionCheck{base: ctx, runDir: runDir, port: port}
}

// Check opens a connection and closes it. It is the superuser's: connections are
// reserved for it. A server that refuses because it starts, stops or has no connection
// left has answered. Where ctx ends before the answer, the next call waits for the same
// one, for checkLimit since the attempt began: a server that starts processes slowly is
// not to start one for each question. One goroutine at a time may call it.
func (c *ConnectionCheck) Check(ctx context.Context) error {
	if c.attempt == nil {
		attempt := make(chan error, 1)
		c.attempt = attempt
		go func() { attempt <- tryConnection(c.base, c.runDir, c.port) }()
	}
	select {
	case err := <-c.attempt:
		c.attempt = nil
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func tryConnection(ctx context.Context, runDir string, port int) error {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	config, err := pgconn.ParseConfig(socketDSN(runDir, port, "holdfast-health"))
	if err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if IsAnswer(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// IsAnswer says whether an error is an answer of the server. A postmaster that
// cannot fork answers in the format of protocol 2, whose text passes for a length
// here, and closes: the client may not have sent anything yet.
func IsAnswer(err error) bool {
	var refusal *pgconn.PgError
	var length *pgproto3.ExceededMaxBodyLenErr
	return errors.As(err, &refusal) || errors.As(err, &length) || errors.Is(err, syscall.EPIPE)
}
