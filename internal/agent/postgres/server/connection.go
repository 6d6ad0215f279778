package server

import (
	"context"
	"errors"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// CheckConnection opens a new connection, as a client does, and closes it. It is
// the superuser's: connections are reserved for it. A server that refuses because
// it starts, stops or has no connection left has answered.
func CheckConnection(ctx context.Context, runDir string, port int) error {
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
