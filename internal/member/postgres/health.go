package postgres

import (
	"context"
	"errors"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// connectAnew makes a connection of its own, as a client does, and closes it.
// It is the superuser's: slots are reserved for it. A server that refuses since
// it starts, stops or has no slot left has answered.
func (a *agent) connectAnew(ctx context.Context) error {
	config, err := pgconn.ParseConfig(dsn(a.o, "holdfast-health"))
	if err != nil {
		return err
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if answered(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// answered says whether an error is an answer of the server. A postmaster that
// cannot fork answers in the format of protocol 2, whose text passes for a length
// here, and closes: the client may not have sent anything yet.
func answered(err error) bool {
	var refusal *pgconn.PgError
	var length *pgproto3.ExceededMaxBodyLenErr
	return errors.As(err, &refusal) || errors.As(err, &length) || errors.Is(err, syscall.EPIPE)
}
