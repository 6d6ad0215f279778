package accounts

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/slots"
)

// EnsureSlots makes a primary's slots for all other members and drops those of former
// ones. The WAL is reserved at once: a copy may begin at any time.
func EnsureSlots(ctx context.Context, conn *pgx.Conn, members []string, self string) error {
	return slots.KeepSlots(ctx, conn, members, slots.Own{Member: self, Primary: true}, nil)
}
