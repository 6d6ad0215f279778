package anomaly_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies/recording"
	"github.com/holdfast-db/holdfast/internal/anomaly"
	"github.com/holdfast-db/holdfast/internal/stats"
)

// recorded are the recordings, made by make record-anomalies, and what their columns are.
var recorded = map[string][]anomaly.Signal{
	"postgres": anomaly.PostgresSignals, "mysql": anomaly.MySQLSignals, "etcd": anomaly.EtcdSignals,
}

func readRecording(t *testing.T, engine string) *recording.Recording {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", engine+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, err := recording.Read(file)
	if err != nil {
		t.Fatalf("%s: %v", engine, err)
	}
	var names []string
	for _, s := range recorded[engine] {
		names = append(names, s.Name)
	}
	if r.Engine != engine || !slices.Equal(r.Signals, names) {
		t.Fatalf("%s: a recording of %s with %v; make record-anomalies records anew", engine, r.Engine, r.Signals)
	}
	return r
}

// replay is a member whose measurements are those of a recording. Stretches of up to an hour
// follow each other in random order, and so have the noise of a real server, and how long it
// lasts. Each measurement counts as that of a minute. Rates of work have a shape over the day
// and the week on top, which the recording is too short for.
type replay struct {
	rand    *rand.Rand
	start   time.Time
	signals []anomaly.Signal
	calm    [][]recording.Row
	faults  map[string][]recording.Row
	// usual is the median of each signal.
	usual []float64
	// peak is the hour of the highest load, and depth how far the nights are below it.
	peak, depth, saturday, sunday float64
	day                           int
	today                         float64
	totals                        []float64
	// block is what is left of a stretch, and fault of a fault.
	block, fault []recording.Row
}

const shortestBlock, longestBlock = 10, 60

func newReplay(r *recording.Recording, seed uint64) *replay {
	random := rand.New(rand.NewPCG(seed, 16))
	m := &replay{
		rand: random, start: time.Date(2026, 3, 2+random.IntN(7), random.IntN(24), random.IntN(60), random.IntN(60), 0, time.UTC),
		signals: recorded[r.Engine], calm: r.Stretches(recording.Calm), faults: map[string][]recording.Row{},
		peak: 24 * random.Float64(), depth: 2 * random.Float64(), saturday: 0.2 + 0.8*random.Float64(), sunday: 0.2 + 0.8*random.Float64(), day: -1,
	}
	m.totals = make([]float64, len(m.signals))
	for _, c := range r.Causes {
		m.faults[c.Name] = slices.Concat(r.Stretches(c.Name)...)
	}
	for i := range m.signals {
		var values []float64
		for _, row := range slices.Concat(m.calm...) {
			if v := row.Values[i]; !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		m.usual = append(m.usual, stats.Median(values))
	}
	return m
}

// load of the time: 1 at the peak of a weekday.
func (m *replay) load(now time.Time) float64 {
	if day := now.YearDay(); day != m.day {
		m.day, m.today = day, math.Exp(0.1*m.rand.NormFloat64())
	}
	hour := float64(now.Hour()) + float64(now.Minute())/60
	load := m.today * math.Exp(m.depth*(math.Cos((hour-m.peak)/24*2*math.Pi)-1)/2)
	switch now.Weekday() {
	case time.Saturday:
		load *= m.saturday
	case time.Sunday:
		load *= m.sunday
	}
	return load
}

// next is the measurement of the next minute. Of a fault only the part that is usual has the
// shape of the load: what is added does not depend on the hour.
func (m *replay) next(now time.Time) []float64 {
	if len(m.block) == 0 {
		m.block = m.pickBlock()
	}
	row := m.block[0]
	m.block = m.block[1:]
	faulty := len(m.fault) > 0
	if faulty {
		row, m.fault = m.fault[0], m.fault[1:]
	}
	load, values := m.load(now), slices.Clone(row.Values)
	for i, s := range m.signals {
		switch {
		case !s.Counter:
			continue
		case s.Kind != anomaly.Load:
		case faulty:
			values[i] = max(values[i]-(1-load)*m.usual[i], 0)
		default:
			values[i] *= load
		}
		if !math.IsNaN(values[i]) {
			m.totals[i] += values[i] * time.Minute.Seconds()
			values[i] = m.totals[i]
		}
	}
	return values
}

// pickBlock takes some measurements in a row, from anywhere.
func (m *replay) pickBlock() []recording.Row {
	all := 0
	for _, stretch := range m.calm {
		all += len(stretch)
	}
	at := m.rand.IntN(all)
	for _, stretch := range m.calm {
		if at < len(stretch) {
			return stretch[at:min(len(stretch), at+shortestBlock+m.rand.IntN(longestBlock-shortestBlock))]
		}
		at -= len(stretch)
	}
	return nil
}

// A recording has enough of a calm load, and every fault as often as it takes to be found.
func TestRecordingsAreWhole(t *testing.T) {
	for engine := range recorded {
		r := readRecording(t, engine)
		if calm := len(slices.Concat(r.Stretches(recording.Calm)...)); calm < 240 {
			t.Errorf("%s: %d calm measurements", engine, calm)
		}
		for _, c := range r.Causes {
			if rows := slices.Concat(r.Stretches(c.Name)...); len(rows) < 10 {
				t.Errorf("%s: %d measurements of %s", engine, len(rows), c.Name)
			}
			for _, name := range c.Signals {
				if !slices.Contains(r.Signals, name) {
					t.Errorf("%s: %s is shown by %s, which is no signal", engine, c.Name, name)
				}
			}
		}
	}
}

// Members whose measurements were recorded of real servers have at most one alarm in a week,
// on average.
func TestReplayedMembersAreQuiet(t *testing.T) {
	for engine := range recorded {
		t.Run(engine, func(t *testing.T) {
			r, total, alarms := readRecording(t, engine), 0, map[string]int{}
			seeds := listSeeds()
			for _, seed := range seeds {
				m := newReplay(r, seed)
				d := anomaly.NewDetector(m.signals, &anomaly.Model{})
				var last time.Time
				for minute := range days * 1440 {
					now := m.start.Add(time.Duration(minute) * time.Minute)
					for _, a := range d.Add(now, m.next(now)) {
						if now.Sub(last) > 30*time.Minute {
							total++
							alarms[a.Signal.Name]++
						}
						last = now
					}
				}
			}
			weeks := float64(len(seeds)) * days / 7
			t.Logf("%d alarms in %.0f weeks of members: %v", total, weeks, alarms)
			if float64(total) > weeks {
				t.Errorf("%d alarms in %.0f weeks of members", total, weeks)
			}
		})
	}
}

// Faults that were caused on real servers are found within five minutes, by one of the signals
// that are expected to show them.
func TestReplayedFaultsAreFound(t *testing.T) {
	all, found := 0, 0
	for engine := range recorded {
		r, times, hits, shownBy := readRecording(t, engine), map[string]int{}, map[string]int{}, map[string]map[string]int{}
		for _, c := range r.Causes {
			shownBy[c.Name] = map[string]int{}
		}
		for _, seed := range listSeeds() {
			replayFaults(r, seed, func(c recording.Cause, shown []string) {
				times[c.Name]++
				if slices.ContainsFunc(shown, func(name string) bool { return slices.Contains(c.Signals, name) }) {
					hits[c.Name]++
				}
				for _, name := range shown {
					shownBy[c.Name][name]++
				}
			})
		}
		for _, c := range r.Causes {
			t.Logf("%-9s %-22s %d of %d are found within five minutes: %.1f %%; by %v (expected: %s)", engine, c.Name, hits[c.Name], times[c.Name],
				100*float64(hits[c.Name])/float64(times[c.Name]), shownBy[c.Name], strings.Join(c.Signals, ", "))
			if times[c.Name] < 20 || float64(hits[c.Name]) < leastShare*float64(times[c.Name]) {
				t.Errorf("%s: %d of %d of %s are found", engine, hits[c.Name], times[c.Name], c.Name)
			}
			all, found = all+times[c.Name], found+hits[c.Name]
		}
	}
	t.Logf("%d of %d faults are found within five minutes: %.1f %%", found, all, 100*float64(found)/float64(all))
	if float64(found) < leastShareOfAll*float64(all) {
		t.Errorf("%d of %d faults are found", found, all)
	}
}

const leastShare, leastShareOfAll = 0.9, 0.95

// replayFaults has a member live through faults at random times, one every few hours, and
// reports the signals that showed each within five minutes.
func replayFaults(r *recording.Recording, seed uint64, report func(c recording.Cause, shown []string)) {
	m := newReplay(r, seed)
	d := anomaly.NewDetector(m.signals, &anomaly.Model{})
	next, begun := m.start.Add(4*24*time.Hour), time.Time{}
	var cause recording.Cause
	var shown []string
	for minute := range days * 1440 {
		now := m.start.Add(time.Duration(minute) * time.Minute)
		if now.After(next) && isLearned(m.start, now) {
			cause, shown, begun = r.Causes[m.rand.IntN(len(r.Causes))], nil, now
			m.fault = m.faults[cause.Name]
			next = now.Add(time.Duration(3+m.rand.IntN(6)) * time.Hour)
		}
		for _, a := range d.Add(now, m.next(now)) {
			shown = append(shown, a.Signal.Name)
		}
		if !begun.IsZero() && now.Sub(begun) == 4*time.Minute {
			report(cause, shown)
		}
	}
}
