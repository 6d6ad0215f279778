package rolechange

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// HeldWAL is what a volume holds.
type HeldWAL struct {
	SystemIdentifier string
	// End is where the last complete record ends, on the newest timeline of which
	// there is one. It is flushed, replayed or not.
	End lsn.Point
	// Reach is how far the pages go that hold a part of one more record.
	Reach uint64
	// History of that timeline.
	History wal.History
	// Timelines are those that the volume holds or held WAL of, in the order of
	// their numbers.
	Timelines []int64
}

// MeasureWAL finds what the volume of a standby holds that receives no WAL.
func (s *Server) MeasureWAL(ctx context.Context) (HeldWAL, error) {
	// Before the position: a restartpoint in between may remove what precedes it.
	control, err := s.o.Programs.ReadControlData(ctx, s.o.PGData)
	if err != nil {
		return HeldWAL{}, fmt.Errorf("measure the WAL: %w", err)
	}
	redo := lsn.Parse(control.Timeline, control.Redo)
	at, err := s.readReplay(ctx)
	if err != nil {
		return HeldWAL{}, fmt.Errorf("measure the WAL: %w", err)
	}
	end, err := wal.FindHeld(s.walDir(), uint32(at.Timeline), at.Position, redo.Position) //nolint:gosec // PostgreSQL's are so long
	if err != nil {
		return HeldWAL{}, fmt.Errorf("measure the WAL: %w", err)
	}
	return describeHeld(s.walDir(), at.SystemIdentifier, end)
}

// MeasureWALAtRest finds what a volume holds whose server does not run.
func MeasureWALAtRest(ctx context.Context, programs server.Programs, pgdata string) (HeldWAL, error) {
	control, err := programs.ReadControlData(ctx, pgdata)
	if err != nil {
		return HeldWAL{}, err
	}
	return measureAtRest(control, filepath.Join(pgdata, "pg_wal"))
}

func measureAtRest(control server.ControlData, dir string) (HeldWAL, error) {
	from := lsn.Parse(control.Timeline, control.Checkpoint)
	end, err := wal.FindExtent(dir, uint32(from.Timeline), from.Position, 0) //nolint:gosec // PostgreSQL's are so long
	if err != nil {
		return HeldWAL{}, fmt.Errorf("measure the WAL: %w", err)
	}
	if least := control.End(); least.Newer(lsn.Point{Timeline: int64(end.Timeline), Position: end.Position}) {
		return HeldWAL{}, fmt.Errorf("the WAL ends at %s of timeline %d, and the data goes to %s: WAL was removed from the volume; copy the data again", wal.FormatPosition(end.Position), end.Timeline, least)
	}
	return describeHeld(dir, control.SystemIdentifier, end)
}

func describeHeld(dir, systemIdentifier string, end wal.Extent) (HeldWAL, error) {
	histories, err := wal.ReadHistories(dir)
	if err != nil {
		return HeldWAL{}, err
	}
	held := HeldWAL{SystemIdentifier: systemIdentifier, End: lsn.Point{Timeline: int64(end.Timeline), Position: end.Position}, Reach: end.Reach}
	held.History = wal.FindHistory(histories, end.Timeline)
	for _, timeline := range held.History.ListHeld(end.Timeline) {
		held.Timelines = append(held.Timelines, int64(timeline))
	}
	return held, nil
}

// replayPoint is how far a standby has replayed.
type replayPoint struct {
	lsn.Point
	SystemIdentifier string
}

// readReplay reads how far the standby has replayed, and on which timeline. Functions
// of SQL do not say that one: pg_control follows at the next restartpoint.
func (s *Server) readReplay(ctx context.Context) (replayPoint, error) {
	for {
		before, err := s.identify(ctx)
		if err != nil {
			return replayPoint{}, err
		}
		var position *int64
		if err := s.query(ctx, "select (pg_last_wal_replay_lsn() - '0/0')::int8", &position); err != nil {
			return replayPoint{}, err
		}
		after, err := s.identify(ctx)
		switch {
		case err != nil:
			return replayPoint{}, err
		case position == nil:
			return replayPoint{}, errors.New("the server replays no WAL: it is no standby")
		case before.Timeline == after.Timeline:
			return replayPoint{lsn.Point{Timeline: int64(after.Timeline), Position: uint64(*position)}, after.SystemID}, nil
		case !clock.Sleep(ctx, poll):
			return replayPoint{}, ctx.Err()
		}
	}
}

// identify asks the own server what it is, over the replication protocol.
func (s *Server) identify(ctx context.Context) (pglogrepl.IdentifySystemResult, error) {
	// With a database's name, the rule for local sessions is the one that holds.
	config, err := pgconn.ParseConfig(fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable application_name=holdfast-identify replication=database", s.o.RunDir, s.o.Port))
	if err != nil {
		return pglogrepl.IdentifySystemResult{}, err
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return pglogrepl.IdentifySystemResult{}, fmt.Errorf("ask the server for its timeline: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pglogrepl.IdentifySystem(ctx, conn)
}

// connect opens one more session as the superuser.
func (s *Server) connect(ctx context.Context, name string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable application_name=%s", s.o.RunDir, s.o.Port, name))
}
