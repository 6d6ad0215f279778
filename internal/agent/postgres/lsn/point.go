// Package lsn holds places in the WAL: a position with its timeline.
package lsn

import (
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// Extent is how far the WAL on a volume goes. The complete records end at Point;
// pages that hold a part of one more end at Reach.
type Extent struct {
	Point
	Reach uint64
}

// Point is a place in the WAL. The zero value is unknown.
type Point struct {
	Timeline int64  `json:"timeline"`
	Position uint64 `json:"position"`
}

func (p Point) String() string {
	return fmt.Sprintf("%s on timeline %d", pglogrepl.LSN(p.Position), p.Timeline)
}

// Newer reports whether p is later than q, by timeline and then by position. A
// new timeline is begun on purpose, when data goes back in time.
func (p Point) Newer(q Point) bool {
	if p.Timeline != q.Timeline {
		return p.Timeline > q.Timeline
	}
	return p.Position > q.Position
}

// IsAhead says whether data that goes as far as own holds what a primary does
// not. Of an older timeline only the database knows.
func IsAhead(own, primary Point) bool {
	return primary.Position > 0 && own.Timeline >= primary.Timeline && own.Newer(primary)
}

// Parse reads a position as PostgreSQL writes it, such as 0/5000028. Of another
// text it returns the zero value.
func Parse(timeline int64, position string) Point {
	at, err := pglogrepl.ParseLSN(position)
	if err != nil {
		return Point{}
	}
	return Point{timeline, uint64(at)}
}

// ChooseFurthest is the later of what a member reported of its WAL and what is observed now.
func ChooseFurthest(before *postgresapi.WALPoint, now Point) *postgresapi.WALPoint {
	if before != nil && !now.Newer(Point{before.Timeline, before.Position}) {
		return before
	}
	return &postgresapi.WALPoint{Timeline: now.Timeline, Position: now.Position}
}
