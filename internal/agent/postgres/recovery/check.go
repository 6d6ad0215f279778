package recovery

import (
	"context"
	"errors"
	"os/exec"

	"github.com/jackc/pgx/v5/pgconn"
)

// Soundness is what was found when all of the data was read.
type Soundness struct {
	// Databases and Tables, without those of the system, and Size of all in
	// bytes.
	Databases, Tables int
	Size              int64
	// Checksums says that every page has one, and that it is right; Structure
	// that amcheck has looked at tables and B-tree indexes.
	Checksums, Structure bool
}

// asBadCopy is what PostgreSQL itself said of the data, in answer to a query or at the
// end of a program.
func asBadCopy(ctx context.Context, err error) error {
	answer, exit := (*pgconn.PgError)(nil), (*exec.ExitError)(nil)
	if ctx.Err() == nil && (errors.As(err, &answer) || errors.As(err, &exit) && exit.Exited()) {
		return &BadCopy{err}
	}
	return err
}
