// Package schedule is the internal cron: at what times a line of cron comes
// up, through the changes of the clock that its time zone has, and which of
// these times is to be handled. It is pure: it reads no clock and starts no
// timer.
package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
	_ "time/tzdata" // images of databases and operators bring no time zones

	"github.com/robfig/cron/v3"
)

// Schedule is a line of cron in a time zone. Its slots are whole minutes.
//
// A line that names every hour goes by elapsed time: its slots come as often in
// an hour that the clock shows twice as in any other. The slots of other lines
// come once for each time that the clock shows: at the first of two, and where
// the clock jumps over it, at the jump. So a run of every night is made every
// night.
type Schedule struct {
	line      string
	zone      *time.Location
	wall      *cron.SpecSchedule // in UTC, that is by what the clock shows
	everyHour bool
}

// String is the line and, unless it is UTC, the time zone.
func (s Schedule) String() string {
	if s.zone == time.UTC {
		return s.line
	}
	return s.line + " " + s.zone.String()
}

// NextSlot is the first slot after t, in UTC.
func (s Schedule) NextSlot(t time.Time) time.Time {
	if s.everyHour {
		return s.nextElapsed(t.In(s.zone)).UTC()
	}
	for shown := shownTime(t.In(s.zone)); ; {
		shown = s.nextShown(shown)
		if slot := timeOfShown(shown, s.zone); slot.After(t) {
			return slot.UTC()
		}
	}
}

// nextElapsed goes from one change of the clock to the next: between two, what
// it shows runs as time does.
func (s Schedule) nextElapsed(at time.Time) time.Time {
	for shown := shownTime(at); ; {
		_, offset := at.Zone()
		_, end := at.ZoneBounds()
		if !end.IsZero() && !end.After(at) {
			end = at.Add(24 * time.Hour) // for Go a leap year ends a day early, on 31 December
		}
		slot := s.nextShown(shown).Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || slot.Before(end) {
			return slot
		}
		at = end.In(s.zone)
		shown = shownTime(at).Add(-time.Second)
	}
}

// nextShown is the next time on a clock, after one on it, that the line names.
func (s Schedule) nextShown(after time.Time) time.Time {
	for {
		if next := s.wall.Next(after); !next.IsZero() {
			return next
		}
		after = after.AddDate(5, 0, 0) // cron looks five years ahead; between 2096 and 2104 there is no 29 February
	}
}

// shownTime is what the clock shows at a time, as if it were UTC.
func shownTime(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// timeOfShown is when the clock of a zone first shows a time, or first goes past it.
func timeOfShown(shown time.Time, zone *time.Location) time.Time {
	at := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, zone)
	start, end := at.ZoneBounds()
	switch is := shownTime(at); {
	case is.After(shown):
		return start
	case is.Before(shown):
		return end
	case start.IsZero():
		return at
	}
	_, offset := start.Add(-time.Second).In(zone).Zone()
	if first := shown.Add(-time.Duration(offset) * time.Second); first.Before(start) {
		return first
	}
	return at
}

// LastSlot is the newest slot that is not after t, in UTC.
func (s Schedule) LastSlot(t time.Time) time.Time {
	before := t
	for back := time.Minute; s.NextSlot(before).After(t); back *= 2 {
		before = t.Add(-back)
	}
	for after := t; ; {
		slot := s.NextSlot(before)
		if s.NextSlot(slot).After(t) {
			return slot
		}
		// The one looked for is between slot and after.
		if middle := slot.Add(after.Sub(slot) / 2); s.NextSlot(middle).After(t) {
			after = middle
		} else {
			before = middle
		}
	}
}

// NightlyLine is the line of a cluster that declares none: a minute between two and
// three at night that follows from its namespace and name, so that clusters do
// not all begin at once, and each keeps its own.
func NightlyLine(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return fmt.Sprintf("%d 2 * * *", binary.BigEndian.Uint64(sum[:8])%60)
}

// SlotName is what a slot is called in the names of objects: its time in UTC, such
// as 20260301-0230.
func SlotName(slot time.Time) string { return slot.UTC().Format("20060102-1504") }
