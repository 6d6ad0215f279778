package rolechange

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

// StandbyStream is a stream of a primary.
type StandbyStream struct {
	// Name is the application's.
	Name string
	// Flushed is how far the standby has flushed; 0 while it does not say.
	Flushed uint64
}

// Progress is what a primary and its standbys have flushed.
type Progress struct {
	// Own is how far the primary has flushed, on the timeline that it writes.
	Own lsn.Point
	// Names is the synchronous_standby_names that it uses.
	Names string
	// Streams are those that began, as far as the standbys have come.
	Streams []StandbyStream
}

// ReadProgress observes a primary.
func (s *Server) ReadProgress(ctx context.Context) (Progress, error) {
	var p Progress
	err := s.o.Session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		const own = "select (pg_current_wal_flush_lsn() - '0/0')::int8, current_setting('synchronous_standby_names'), (" + insertTimelineQuery + ")"
		// Standbys first: they have no more than the primary.
		rows, err := c.Query(ctx, `select application_name::text, coalesce((flush_lsn - '0/0')::int8, 0)
			from pg_stat_replication where state in ('streaming', 'stopping')`)
		if err != nil {
			return err
		}
		var name string
		var flushed int64
		if _, err := pgx.ForEachRow(rows, []any{&name, &flushed}, func() error {
			p.Streams = append(p.Streams, StandbyStream{name, uint64(flushed)}) //nolint:gosec // a position
			return nil
		}); err != nil {
			return err
		}
		var position int64
		err = c.QueryRow(ctx, own).Scan(&position, &p.Names, &p.Own.Timeline)
		p.Own.Position = uint64(position) //nolint:gosec // a position
		return err
	})
	if err != nil {
		return Progress{}, fmt.Errorf("observe the standbys: %w", err)
	}
	return p, nil
}

// FindAcknowledged finds up to where the primary and its quorum surely have flushed all.
// It may be less than before, when a standby of the quorum streams no more. It is
// unknown, the zero value, while fewer standbys stream than the quorum needs, and
// where the server uses another one.
func (p Progress) FindAcknowledged(q Quorum) lsn.Point {
	if p.Names != q.String() {
		return lsn.Point{}
	}
	if q.Number == 0 {
		return p.Own
	}
	furthest := map[string]uint64{}
	for _, stream := range p.Streams {
		name := strings.ToLower(stream.Name)
		isMember := func(m string) bool { return strings.EqualFold(m, name) }
		if stream.Flushed > 0 && slices.ContainsFunc(q.Members, isMember) {
			furthest[name] = max(furthest[name], stream.Flushed)
		}
	}
	var flushed []uint64
	for _, position := range furthest {
		flushed = append(flushed, position)
	}
	if len(flushed) < q.Number {
		return lsn.Point{}
	}
	slices.Sort(flushed)
	slices.Reverse(flushed)
	return lsn.Point{Timeline: p.Own.Timeline, Position: min(flushed[q.Number-1], p.Own.Position)}
}

// ListReached lists the names of the streams that have flushed the first record of the
// primary's timeline, sorted. Not all are those of standbys: a copy that is being made and
// a logical subscriber flush as well.
func (p Progress) ListReached(promoted Promoted) []string {
	if p.Own.Timeline != promoted.Timeline {
		return nil
	}
	var names []string
	for _, stream := range p.Streams {
		if stream.Flushed >= promoted.First.Position {
			names = append(names, stream.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
