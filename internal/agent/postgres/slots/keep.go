package slots

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// KeepSlots keeps a server's slots for all other members. The positions are what those
// report to have flushed; a member that does not report one keeps its slot where it is,
// until that holds more WAL than max_slot_wal_keep_size. Redo of own is read here.
func KeepSlots(ctx context.Context, conn *pgx.Conn, members []string, own Own, positions map[string]lsn.Point) error {
	have, err := listSlots(ctx, conn)
	if err != nil {
		return err
	}
	var redo string
	if err := conn.QueryRow(ctx, "select redo_lsn::text from pg_control_checkpoint()").Scan(&redo); err != nil {
		return fmt.Errorf("read where the server begins: %w", err)
	}
	own.Redo = lsn.Parse(own.Timeline, redo).Position
	for _, change := range PlanSlots(have, members, own, positions) {
		if err := applyChange(ctx, conn, change); err != nil {
			return fmt.Errorf("%s slot %s: %w", change.Action, change.Name, err)
		}
	}
	return nil
}

func listSlots(ctx context.Context, conn *pgx.Conn) ([]Slot, error) {
	rows, err := conn.Query(ctx, `select slot_name::text, active, coalesce(wal_status = 'lost', false), coalesce((restart_lsn - '0/0')::int8, 0)
		from pg_replication_slots where slot_type = 'physical' and not temporary order by slot_name`)
	if err != nil {
		return nil, fmt.Errorf("list replication slots: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Slot, err error) {
		var restart int64
		err = row.Scan(&s.Name, &s.Active, &s.Lost, &restart)
		s.Restart = uint64(restart) //nolint:gosec // a position
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list replication slots: %w", err)
	}
	return found, nil
}

func applyChange(ctx context.Context, conn *pgx.Conn, change SlotChange) error {
	var err error
	switch change.Action {
	case Drop:
		_, err = conn.Exec(ctx, "select pg_drop_replication_slot($1)", change.Name)
	case Create:
		_, err = conn.Exec(ctx, "select pg_create_physical_replication_slot($1, true)", change.Name)
	case Advance:
		_, err = conn.Exec(ctx, "select pg_replication_slot_advance($1, $2::pg_lsn)", change.Name, wal.FormatPosition(change.To))
	}
	return err
}
