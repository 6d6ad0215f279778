package accounts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
)

// slot is a replication slot on the primary.
type slot struct {
	Name         string
	Active, Lost bool
}

// planSlots says which slots to drop and which to make, in this order. Only
// slots of our own name pattern are touched, and no active one is dropped. A
// lost slot holds nothing any more and is made anew.
func planSlots(existing []slot, members []string, self string) (drop, create []string) {
	var wanted []string
	for _, member := range members {
		if member != self {
			wanted = append(wanted, settings.SlotName(member))
		}
	}
	var kept []string
	for _, s := range existing {
		ours := strings.HasPrefix(s.Name, settings.SlotPrefix)
		switch {
		case ours && !s.Active && (s.Lost || !slices.Contains(wanted, s.Name)):
			drop = append(drop, s.Name)
		default:
			kept = append(kept, s.Name)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(kept, name) {
			create = append(create, name)
		}
	}
	return drop, create
}

// EnsureSlots makes the slots of all other members and drops those of former
// ones. The log is reserved at once: a copy may begin at any time.
func EnsureSlots(ctx context.Context, conn *pgx.Conn, members []string, self string) error {
	rows, err := conn.Query(ctx, `select slot_name::text, active, coalesce(wal_status = 'lost', false)
		from pg_replication_slots where slot_type = 'physical' and not temporary`)
	if err != nil {
		return fmt.Errorf("list replication slots: %w", err)
	}
	existing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[slot])
	if err != nil {
		return fmt.Errorf("list replication slots: %w", err)
	}
	drop, create := planSlots(existing, members, self)
	for _, name := range drop {
		if _, err := conn.Exec(ctx, "select pg_drop_replication_slot($1)", name); err != nil {
			return fmt.Errorf("drop slot %s: %w", name, err)
		}
	}
	for _, name := range create {
		if _, err := conn.Exec(ctx, "select pg_create_physical_replication_slot($1, true)", name); err != nil {
			return fmt.Errorf("create slot %s: %w", name, err)
		}
	}
	return nil
}
