package anomaly

import (
	"math"
	"time"

	"github.com/holdfast-db/holdfast/internal/stats"
)

const (
	// Three measurements in a row of 4.2 deviations are an anomaly: each adds what it is
	// above scoreSlack, up to scoreLimit, and the sum reaches alarmSum. Four deviations take
	// four measurements. Two measurements are no anomaly, however far they are.
	scoreSlack, scoreLimit, alarmSum = 2.0, 5.0, 6.5
	// leastFactor is how far from usual a measurement is, at least, to count. Bursts of a
	// load are often twice of what is usual.
	leastFactor = 3.0
	// calmMinutes in a row within calmScore end an anomaly. One that lasts longest is what
	// is usual from then on.
	calmMinutes = 5
	calmScore   = 3.0
	longest     = 3 * time.Hour
	// longestGap is the longest time between two measurements that belong together.
	longestGap = 5 * time.Minute
	// MuteSpan is how long nothing is judged after a planned change.
	MuteSpan = 15 * time.Minute
	// CauseSpan is how long a planned change is named as the probable cause.
	CauseSpan = time.Hour
)

// Cause is a change that was made on purpose.
type Cause string

// The causes.
const (
	RoleChanged     Cause = "RoleChanged"
	SettingsChanged Cause = "SettingsChanged"
	ServerStarted   Cause = "ServerStarted"
	DataCopied      Cause = "DataCopied"
)

// Anomaly is a signal that is not as usual.
type Anomaly struct {
	Signal Signal
	// Observed and Expected, in the signal's unit, when it was noticed.
	Observed, Expected float64
	// Since is when it began, and Until when it ended; zero while it lasts.
	Since, Until time.Time
	// Cause that is probable; empty for none. CausedAt is when that was.
	Cause    Cause
	CausedAt time.Time
}

// Lasts says whether the signal is not as usual now.
func (a Anomaly) Lasts() bool { return !a.Since.IsZero() && a.Until.IsZero() }

// watch is how one signal goes.
type watch struct {
	// before is the last value of a counter; NaN for none.
	before float64
	// above and below are the sums of scores, and began is when the larger left zero.
	above, below float64
	began        time.Time
	// recent values, in the signal's unit.
	recent [3]float64
	// calm minutes in a row while an anomaly lasts.
	calm int
	// last anomaly.
	last Anomaly
	// measured in the open slot, in logarithms.
	measured []float64
}

// Detector finds anomalies in a member's signals. It is not safe for use by several
// goroutines.
type Detector struct {
	// Model is what was learned.
	Model *Model

	signals []Signal
	watches []watch
	// open is the slot whose measurements are collected.
	open  slot
	at    time.Time
	muted time.Time
	cause Cause
	// caused is when the cause was.
	caused time.Time
}

// NewDetector watches so many signals, by what was learned before.
func NewDetector(signals []Signal, learned *Model) *Detector {
	d := &Detector{Model: learned, signals: signals, watches: make([]watch, len(signals))}
	for i := range d.watches {
		d.watches[i] = watch{before: math.NaN(), recent: [3]float64{math.NaN(), math.NaN(), math.NaN()}}
	}
	return d
}

// Mark reports a change that was made on purpose: what it does to the signals at once is
// neither judged nor learned.
func (d *Detector) Mark(now time.Time, cause Cause) {
	d.cause, d.caused, d.muted = cause, now, now.Add(MuteSpan)
	for i := range d.watches {
		w := &d.watches[i]
		w.above, w.below, w.measured = 0, 0, w.measured[:0]
	}
}

// Add takes in one measurement of each signal, which is due once a minute; NaN for one that
// is missing. It returns the anomalies that it shows to have begun.
func (d *Detector) Add(now time.Time, values []float64) (began []Anomaly) {
	since := now.Sub(d.at)
	if since <= 0 {
		return nil // the clock was set back
	}
	if d.at.IsZero() || since > longestGap {
		d.interrupt()
	}
	if at := slotOf(now); at != d.open || since > longestGap {
		d.closeSlot(at)
	}
	d.at, d.Model.Time = now, now.Unix()
	for i := range d.signals {
		value := d.watches[i].rate(d.signals[i], values[i], since)
		if math.IsNaN(value) || now.Before(d.muted) {
			continue
		}
		if a, is := d.watchSignal(i, now, value); is {
			began = append(began, a)
		}
	}
	return began
}

// interrupt forgets what belongs to the measurement before.
func (d *Detector) interrupt() {
	for i := range d.watches {
		w := &d.watches[i]
		w.before, w.above, w.below, w.calm = math.NaN(), 0, 0, 0
	}
}

// closeSlot learns what was measured in the open slot, and opens another. A slot that was
// not measured for the most part is left out.
func (d *Detector) closeSlot(next slot) {
	measured, full := make([][]float64, len(d.watches)), false
	for i := range d.watches {
		measured[i] = d.watches[i].measured
		full = full || len(measured[i]) > slotMinutes/2
	}
	if full {
		d.Model.learnSlot(d.open, measured)
	}
	for i := range d.watches {
		d.watches[i].measured = d.watches[i].measured[:0]
	}
	d.open = next
}

// rate is what is judged of a measurement; NaN where it cannot be.
func (w *watch) rate(s Signal, value float64, since time.Duration) float64 {
	if !s.Counter {
		return max(value, 0)
	}
	before := w.before
	w.before = value
	if math.IsNaN(value) || math.IsNaN(before) || value < before {
		return math.NaN()
	}
	return (value - before) / since.Seconds()
}

// watchSignal judges and learns a value, and returns the anomaly that it completes.
func (d *Detector) watchSignal(i int, now time.Time, value float64) (Anomaly, bool) {
	s, w := d.signals[i], &d.watches[i]
	w.recent = [3]float64{w.recent[1], w.recent[2], value}
	level := math.Log(value + s.Floor)
	w.measured = append(w.measured, level)
	j := d.Model.judge(i, now, level)
	found := false
	switch {
	case !j.known:
		w.above, w.below = 0, 0
	case w.last.Lasts():
		d.endCalm(i, now, j)
	default:
		found = w.addScore(now, s.Kind, j)
	}
	if found {
		w.last = Anomaly{Signal: s, Observed: stats.Median(w.recentValues()), Since: w.began}
		w.last.Expected = max(math.Exp(level-j.away)-s.Floor, 0)
		if d.cause != "" && w.began.Sub(d.caused) < CauseSpan {
			w.last.Cause, w.last.CausedAt = d.cause, d.caused
		}
		w.above, w.below, w.calm = 0, 0, 0
	}
	d.Model.follow(i, now, level)
	return w.last, found
}

// addScore adds a judgement to the sums, and says whether they show an anomaly.
func (w *watch) addScore(now time.Time, kind Kind, j judgement) bool {
	score := limit(j.score, scoreLimit)
	if math.Abs(j.away) < math.Log(leastFactor) {
		score = limit(score, scoreSlack)
	}
	if kind != Load {
		score = max(score, 0) // fewer errors are no trouble
	}
	calm := w.above == 0 && w.below == 0
	w.above = max(0, w.above+score-scoreSlack)
	w.below = max(0, w.below-score-scoreSlack)
	if calm {
		w.began = now
	}
	return w.above >= alarmSum || w.below >= alarmSum
}

// endCalm ends an anomaly that is over, or has become what is usual.
func (d *Detector) endCalm(i int, now time.Time, j judgement) {
	w := &d.watches[i]
	w.calm++
	if math.Abs(j.score) > calmScore {
		w.calm = 0
	}
	switch {
	case w.calm >= calmMinutes:
		w.last.Until = now
	case now.Sub(w.last.Since) >= longest:
		w.last.Until = now
		d.Model.Shift[i] += float32(j.away)
	}
}

func (w *watch) recentValues() (known []float64) {
	for _, v := range w.recent {
		if !math.IsNaN(v) {
			known = append(known, v)
		}
	}
	return known
}

// List is the last anomaly of each signal that had one and that lasts or ended no longer
// than a day ago.
func (d *Detector) List(now time.Time) (list []Anomaly) {
	for _, w := range d.watches {
		if a := w.last; !a.Since.IsZero() && (a.Lasts() || now.Sub(a.Until) <= 24*time.Hour) {
			list = append(list, a)
		}
	}
	return list
}
