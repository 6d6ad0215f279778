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

// newReplay returns a member that lives as the calm stretches of a recording.
func newReplay(r *recording.Recording, calm [][]recording.Row, seed uint64) *replay {
	random := rand.New(rand.NewPCG(seed, 16))
	m := &replay{
		rand: random, start: time.Date(2026, 3, 2+random.IntN(7), random.IntN(24), random.IntN(60), random.IntN(60), 0, time.UTC),
		signals: recorded[r.Engine], calm: calm,
		peak: 24 * random.Float64(), depth: 2 * random.Float64(), saturday: 0.2 + 0.8*random.Float64(), sunday: 0.2 + 0.8*random.Float64(), day: -1,
	}
	m.totals = make([]float64, len(m.signals))
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

// next is the measurement of the next minute.
func (m *replay) next(now time.Time) []float64 {
	if len(m.block) == 0 {
		m.block = m.pickBlock()
	}
	row := m.block[0]
	m.block = m.block[1:]
	if len(m.fault) > 0 {
		row, m.fault = m.fault[0], m.fault[1:]
	}
	return m.measure(now, row)
}

// measure is what the agent would measure of a row.
func (m *replay) measure(now time.Time, row recording.Row) []float64 {
	load, values := m.load(now), make([]float64, len(m.signals))
	for i, s := range m.signals {
		values[i] = m.shape(i, row, load)
		if s.Counter && !math.IsNaN(values[i]) {
			m.totals[i] += values[i] * time.Minute.Seconds()
			values[i] = m.totals[i]
		}
	}
	return values
}

// shape gives rates of work the shape of the load. Of a fault only the part that is usual has
// it: what is added does not depend on the hour.
func (m *replay) shape(i int, row recording.Row, load float64) float64 {
	value := row.Values[i]
	switch s := m.signals[i]; {
	case !s.Counter || s.Kind != anomaly.Load:
		return value
	case row.Part == recording.Calm || row.Part == recording.After:
		return value * load
	}
	return max(value-(1-load)*m.usual[i], 0)
}

// factor is by how much a fault changes one of the signals that are expected to show it, at
// this hour: the largest of them, with what makes no difference added to both.
func (m *replay) factor(now time.Time, c recording.Cause, rows []recording.Row) float64 {
	load, most := m.load(now), 0.0
	for i, s := range m.signals {
		if !slices.Contains(c.Signals, s.Name) {
			continue
		}
		usual := m.shape(i, recording.Row{Part: recording.Calm, Values: m.usual}, load)
		var away []float64
		for _, row := range rows {
			if v := m.shape(i, row, load); !math.IsNaN(v) {
				away = append(away, math.Abs(math.Log((v+s.Floor)/(usual+s.Floor))))
			}
		}
		if len(away) > 0 {
			most = max(most, stats.Median(away))
		}
	}
	return math.Exp(most)
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
			times := r.Stretches(c.Name)
			if len(times) < 2 {
				t.Errorf("%s: %s is recorded %d times", engine, c.Name, len(times))
			}
			for _, rows := range times {
				if len(rows) < noticedRows {
					t.Errorf("%s: %d measurements of %s", engine, len(rows), c.Name)
				}
			}
			for _, name := range c.Signals {
				if !slices.Contains(r.Signals, name) {
					t.Errorf("%s: %s is shown by %s, which is no signal", engine, c.Name, name)
				}
			}
		}
	}
}

const (
	// noticedRows is within how many measurements a fault has to be found.
	noticedRows = 5
	// leastShareOfAll is how many of all faults have to be found.
	leastShareOfAll = 0.93
)

// Members whose measurements were recorded of real servers have at most one alarm in a week, on
// average. Twice while etcd was recorded, the disk was slow for some seconds, and a replay has
// these stretches every few hours.
func TestReplayedMembersAreQuiet(t *testing.T) {
	for engine := range recorded {
		t.Run(engine, func(t *testing.T) {
			r, total, alarms := readRecording(t, engine), 0, map[string]int{}
			seeds := listSeeds()
			for _, seed := range seeds {
				m := newReplay(r, r.Stretches(recording.Calm), seed)
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

// findings counts how often each fault of a recording was found.
type findings struct {
	// times is how often it was caused, and after holds how many measurements it took, each
	// time that it was found by a signal that is expected to show it.
	times map[string]int
	after map[string][]float64
	// by counts the signals that showed it, expected or not.
	by map[string]map[string]int
	// bySize counts all faults and those found, by how much they change a signal.
	bySize [len(sizes)]struct{ times, found int }
}

// sizes are factors by which a fault changes a signal at least, and leastShares how many of
// those faults have to be found.
var (
	sizes       = [...]float64{8, 4, 1}
	leastShares = [len(sizes)]float64{0.97, 0.85, 0}
)

func newFindings() *findings {
	return &findings{times: map[string]int{}, after: map[string][]float64{}, by: map[string]map[string]int{}}
}

// add takes in the anomalies that began while a fault lasted, by measurement.
func (f *findings) add(c recording.Cause, factor float64, shown [][]string) {
	f.times[c.Name]++
	if f.by[c.Name] == nil {
		f.by[c.Name] = map[string]int{}
	}
	found := 0
	for n, names := range shown {
		for _, name := range names {
			f.by[c.Name][name]++
			if found == 0 && slices.Contains(c.Signals, name) {
				found = 1
				f.after[c.Name] = append(f.after[c.Name], float64(n+1))
			}
		}
	}
	size := slices.IndexFunc(sizes[:], func(least float64) bool { return factor >= least })
	f.bySize[size].times++
	f.bySize[size].found += found
}

// log reports the findings of a recording, and fails if a fault is caused too seldom.
func (f *findings) log(t *testing.T, r *recording.Recording, leastTimes int) {
	t.Helper()
	for _, c := range r.Causes {
		n, hits := f.times[c.Name], len(f.after[c.Name])
		t.Logf("%-8s %-21s %d of %d are found: %.1f %%, after %g measurements in the middle; by %v (expected: %s)", r.Engine, c.Name, hits, n,
			100*float64(hits)/float64(n), stats.Median(f.after[c.Name]), f.by[c.Name], strings.Join(c.Signals, ", "))
		if n < leastTimes {
			t.Errorf("%s: %s is caused %d times", r.Engine, c.Name, n)
		}
	}
}

// judgeAll fails if too few faults of all recordings are found.
func judgeAll(t *testing.T, all []*findings) {
	t.Helper()
	allTimes, allFound := 0, 0
	for i, least := range sizes {
		times, found := 0, 0
		for _, f := range all {
			times, found = times+f.bySize[i].times, found+f.bySize[i].found
		}
		t.Logf("of faults that change a signal by a factor of %g at least, %d of %d are found: %.1f %%", least, found, times, 100*float64(found)/float64(times))
		if float64(found) < leastShares[i]*float64(times) {
			t.Errorf("of faults that change a signal by a factor of %g at least, %d of %d are found", least, found, times)
		}
		allTimes, allFound = allTimes+times, allFound+found
	}
	t.Logf("%d of %d faults are found: %.1f %%", allFound, allTimes, 100*float64(allFound)/float64(allTimes))
	if float64(allFound) < leastShareOfAll*float64(allTimes) {
		t.Errorf("%d of %d faults are found", allFound, allTimes)
	}
}

// Faults that were caused on real servers are found within five measurements, by one of the
// signals that are expected to show them.
func TestReplayedFaultsAreFound(t *testing.T) {
	var all []*findings
	for engine := range recorded {
		r, f := readRecording(t, engine), newFindings()
		for _, seed := range listSeeds() {
			replayFaults(r, seed, f)
		}
		f.log(t, r, 20)
		all = append(all, f)
	}
	judgeAll(t, all)
}

// replayFaults has a member live through faults at random times, one every few hours.
func replayFaults(r *recording.Recording, seed uint64, f *findings) {
	m := newReplay(r, r.Stretches(recording.Calm), seed)
	d := anomaly.NewDetector(m.signals, &anomaly.Model{})
	next := m.start.Add(4 * 24 * time.Hour)
	var cause recording.Cause
	var factor float64
	var shown [][]string
	for minute := range days * 1440 {
		now := m.start.Add(time.Duration(minute) * time.Minute)
		if now.After(next) && isLearned(m.start, now) {
			cause, shown = r.Causes[m.rand.IntN(len(r.Causes))], [][]string{}
			times := r.Stretches(cause.Name)
			m.fault = times[m.rand.IntN(len(times))]
			factor = m.factor(now, cause, m.fault[:noticedRows])
			next = now.Add(time.Duration(3+m.rand.IntN(6)) * time.Hour)
		}
		began := namesOf(d.Add(now, m.next(now)))
		if shown == nil {
			continue
		}
		if shown = append(shown, began); len(shown) == noticedRows {
			f.add(cause, factor, shown)
			shown = nil
		}
	}
}

func namesOf(list []anomaly.Anomaly) (names []string) {
	for _, a := range list {
		names = append(names, a.Signal.Name)
	}
	return names
}

// A member that learned from the first calm stretch of a recording for two weeks finds the
// faults of the rest, which follows in the order in which it was recorded.
func TestRecordedRunsInTheirOrder(t *testing.T) {
	var all []*findings
	for engine := range recorded {
		r, f, calm, alarms := readRecording(t, engine), newFindings(), 0, map[string]int{}
		for _, seed := range listSeeds() {
			calm += replayRun(r, seed, f, alarms)
		}
		f.log(t, r, 2)
		t.Logf("%s: in %d calm measurements after those that were learned from, anomalies begin of %v", engine, calm, alarms)
		all = append(all, f)
	}
	judgeAll(t, all)
}

// replayRun counts the anomalies that begin in calm measurements, and returns how many of
// those there are.
func replayRun(r *recording.Recording, seed uint64, f *findings, alarms map[string]int) (calm int) {
	first := r.Stretches(recording.Calm)[:1]
	m := newReplay(r, first, seed)
	d, now := anomaly.NewDetector(m.signals, &anomaly.Model{}), m.start
	for range 14 * 1440 {
		now = now.Add(time.Minute)
		d.Add(now, m.next(now))
	}
	rest := r.Rows[len(first[0]):]
	part, factor, shown := "", 0.0, [][]string{}
	for n, row := range rest {
		now = now.Add(time.Minute)
		cause := slices.IndexFunc(r.Causes, func(c recording.Cause) bool { return c.Name == row.Part })
		if row.Part != part {
			part, shown = row.Part, [][]string{}
			if cause >= 0 {
				factor = m.factor(now, r.Causes[cause], rest[n:n+noticedRows])
			}
		}
		began := namesOf(d.Add(now, m.measure(now, row)))
		shown = append(shown, began)
		switch {
		case part == recording.Calm:
			calm++
			for _, name := range began {
				alarms[name]++
			}
		case cause >= 0 && len(shown) == noticedRows:
			f.add(r.Causes[cause], factor, shown)
		}
	}
	return calm
}
