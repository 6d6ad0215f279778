package anomaly

import (
	"math"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/stats"
)

const (
	slotLength  = 5 * time.Minute
	slotsPerDay = int(24 * time.Hour / slotLength)
	// slotMinutes is how many measurements a slot has.
	slotMinutes = int(slotLength / time.Minute)
	// weekdaysToLearn and weekendDaysToLearn is on how many days a slot must have been
	// measured before it is judged by.
	weekdaysToLearn, weekendDaysToLearn = 3, 2
	// leastGain is how much of a new day counts once there are several.
	leastGain = 0.2
	// leastShare of the deviation over all hours is the least that a slot has: a load with
	// bursts has some in every hour, and a slot has learned from a few measurements.
	leastShare = 0.85
	// leastSpread bounds how exactly a signal is known: a fifth more or less is nothing.
	leastSpread = 0.1
	// longestJump is how far one day moves what is learned, so that one odd day does not
	// become what is usual.
	longestJump = 0.7
	// shiftMinutes is how fast the level of today follows, and spreadMinutes the spread of all
	// hours.
	shiftMinutes, spreadMinutes = 90, 720
	// toDeviation makes a standard deviation of a mean distance.
	toDeviation = 1.25
)

// Band is what is usual in a slot. All of it is in logarithms, so that a factor is a
// difference: half as much is as far as twice as much.
type Band struct {
	// Level is the running median, and Spread the running deviation from it. A Spread of 0
	// says that nothing is known.
	Level, Spread float32
}

// Model is what was learned of a member: at most 55 KiB. The zero value knows nothing.
type Model struct {
	// Time of the last measurement, in seconds since 1970.
	Time int64
	// Days on which each slot was measured, on weekdays and on weekends.
	Days [2][slotsPerDay]uint8
	// Bands of each signal in each slot.
	Bands [MostSignals][2][slotsPerDay]Band
	// Shift is how far today is from what is usual, and Spread the deviation over all hours.
	Shift, Spread [MostSignals]float32
}

// slot is five minutes of a weekday or of a day of a weekend, in UTC.
type slot struct{ day, number int }

func slotOf(t time.Time) slot {
	t = t.UTC()
	s := slot{number: (t.Hour()*60 + t.Minute()) / slotMinutes}
	if d := t.Weekday(); d == time.Saturday || d == time.Sunday {
		s.day = 1
	}
	return s
}

// isLearned says whether the slot may be judged by.
func (m *Model) isLearned(at slot) bool {
	return m.Days[at.day][at.number] >= [2]uint8{weekdaysToLearn, weekendDaysToLearn}[at.day]
}

// learnSlot takes in what was measured in a slot: values of each signal.
func (m *Model) learnSlot(at slot, measured [][]float64) {
	days := m.Days[at.day][at.number]
	for i, values := range measured {
		if len(values) > 1 {
			m.Bands[i][at.day][at.number].learn(values, days, float64(m.Shift[i]))
		}
	}
	if days < math.MaxUint8 {
		m.Days[at.day][at.number]++
	}
}

func (b *Band) learn(values []float64, days uint8, shift float64) {
	middle := stats.Median(slices.Clone(values))
	level, spread := float64(b.Level), float64(b.Spread)
	if spread == 0 {
		level, spread, days, shift = middle, 0, 0, 0
	}
	away := 0.0
	for _, v := range values {
		d := math.Abs(v - level - shift)
		if days >= weekdaysToLearn {
			d = min(d, 4*spread)
		}
		away += d * toDeviation / float64(len(values))
	}
	gain, jump := max(1/float64(days+1), leastGain), middle-level
	if days >= weekdaysToLearn {
		jump = limit(jump, max(3*spread, longestJump))
	}
	b.Level = float32(level + gain*jump)
	b.Spread = float32(max(spread+gain*(away-spread), leastSpread))
}

// follow takes in one measurement: today's level, and the spread over all hours.
func (m *Model) follow(signal int, now time.Time, value float64) {
	at := slotOf(now)
	b := m.Bands[signal][at.day][at.number]
	if b.Spread == 0 {
		return
	}
	shift, spread := float64(m.Shift[signal]), float64(m.Spread[signal])
	away := value - float64(b.Level) - shift
	m.Shift[signal] = float32(shift + limit(away, 3*m.deviation(signal, now))/shiftMinutes)
	if spread == 0 {
		spread = float64(b.Spread)
	}
	m.Spread[signal] = float32(spread + (min(math.Abs(away), 4*spread)*toDeviation-spread)/spreadMinutes)
}

// bandsAround are those known of the slot and of the two before and after it.
func (m *Model) bandsAround(signal int, now time.Time) (known []Band) {
	for near := -2; near <= 2; near++ {
		at := slotOf(now.Add(time.Duration(near) * slotLength))
		if b := m.Bands[signal][at.day][at.number]; b.Spread > 0 {
			known = append(known, b)
		}
	}
	return known
}

// deviation is the spread that the slots around have in the middle. What a single slot learns
// of its spread comes from a few measurements, and is often twice or half of what it is.
func (m *Model) deviation(signal int, now time.Time) float64 {
	var spreads []float64
	for _, b := range m.bandsAround(signal, now) {
		spreads = append(spreads, float64(b.Spread))
	}
	return max(stats.Median(spreads), leastShare*float64(m.Spread[signal]), leastSpread)
}

// judgement of one measurement.
type judgement struct {
	// known says that it can be judged.
	known bool
	// away is how far it is from what is usual, and score how many deviations that is. Both
	// are negative below what is usual.
	away, score float64
}

// judge compares a value with its slot, and with those of ten minutes before and after it: a
// job that begins a little sooner or later is as usual. The nearest counts.
func (m *Model) judge(signal int, now time.Time, value float64) judgement {
	j := judgement{}
	if at := slotOf(now); !m.isLearned(at) || m.Bands[signal][at.day][at.number].Spread == 0 {
		return j
	}
	deviation := m.deviation(signal, now)
	for _, b := range m.bandsAround(signal, now) {
		away := value - float64(b.Level) - float64(m.Shift[signal])
		score := away / deviation
		switch {
		case !j.known:
			j = judgement{true, away, score}
		case away*j.away <= 0:
			return judgement{known: true}
		case math.Abs(score) < math.Abs(j.score):
			j.away, j.score = away, score
		}
	}
	return j
}

func limit(v, most float64) float64 { return max(-most, min(v, most)) }
