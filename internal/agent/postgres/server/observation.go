package server

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Observation is what one look at a running server shows.
type Observation struct {
	// Recovery says that it is a standby, or not promoted yet.
	Recovery bool
	// Position is how far a primary's WAL is flushed, and of a standby, how far it
	// has replayed.
	Position int64
	// Received is the end of a standby's WAL, replayed or not; 0 of a primary.
	Received int64
	// Timeline that it writes, or receives.
	Timeline int64
	// Receiving says that a standby's stream is at work.
	Receiving bool
}

// observationLimit is how long a server may take to show it.
const observationLimit = 2 * time.Second

const observationQuery = `select r.recovery,
	case when r.recovery then coalesce((pg_last_wal_replay_lsn() - '0/0')::int8, 0)
	     else (pg_current_wal_flush_lsn() - '0/0')::int8 end,
	case when r.recovery then coalesce((greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) - '0/0')::int8, 0) else 0 end,
	case when r.recovery then coalesce((select received_tli from pg_stat_wal_receiver), (select timeline_id from pg_control_checkpoint()))
	     else ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int end::int8,
	exists (select from pg_stat_wal_receiver where status = 'streaming')
	from (select pg_is_in_recovery() as recovery) r`

// ObserveServer looks at the server through a session.
func ObserveServer(ctx context.Context, s *Session) (Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, observationLimit)
	defer cancel()
	var o Observation
	err := s.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, observationQuery).Scan(&o.Recovery, &o.Position, &o.Received, &o.Timeline, &o.Receiving)
	})
	return o, err
}
