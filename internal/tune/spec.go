package tune

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Engine is a kind of database.
type Engine string

// The engines.
const (
	PostgreSQL Engine = "PostgreSQL"
	MySQL      Engine = "MySQL"
	Etcd       Engine = "etcd"
)

// Mode says what becomes of advice.
type Mode string

// The modes.
const (
	Off       Mode = "Off"
	Recommend Mode = "Recommend"
	Apply     Mode = "Apply"
)

const (
	// MemoryShare of the memory limit is what settings may take together.
	MemoryShare = 0.8
	// MostStep is the largest factor of one change.
	MostStep = 2
	// leastStep is the least factor that is worth a change.
	leastStep = 1.25
	// leastObserved is what must have been measured before there is advice, in seconds.
	leastObserved = 600
)

// Times are how long things take. Tests have others than DefaultTimes.
type Times struct {
	// Observe is how long a change is observed, and Slot the part of it that is compared
	// with the same part of the time before.
	Observe, Slot time.Duration
	// GiveUp is when a change is taken back of which too little was measured.
	GiveUp time.Duration
	// Quarantine is how long a setting is left alone after it was taken back.
	Quarantine time.Duration
}

// DefaultTimes are the times outside of tests.
var DefaultTimes = Times{Observe: 24 * time.Hour, Slot: time.Hour, GiveUp: 7 * 24 * time.Hour, Quarantine: 30 * 24 * time.Hour}

// Spec is what a person declared, as far as it matters here.
type Spec struct {
	Engine Engine
	Mode   Mode
	// Exclude are settings that are left alone.
	Exclude []string
	// Declared are the settings in the spec, by name.
	Declared map[string]string
	// Memory is the limit in bytes; 0 for none, and then no memory setting is raised.
	// Volume is the declared size in bytes.
	Memory, Volume int64
	// Open says that the window is open, in which changes may be made.
	Open  bool
	Times Times
}

// Evidence is what the members report.
type Evidence struct {
	// Slots that the members measured while they led, the oldest first.
	Slots []agentapi.TuningSlot
	// Settled says that every member serves with the settings that were persisted.
	Settled bool
	// Refused says why the database does not take its settings; empty where it does.
	Refused string
	// Broken says that a member's database does not start any more.
	Broken bool
}

// mayChange says whether a setting may be tuned.
func (s Spec) mayChange(name string) bool {
	_, declared := s.Declared[name]
	return !declared && !slices.Contains(s.Exclude, name)
}

// current is what the newest slot says is in force; nil for nothing known.
func (e Evidence) current() map[string]float64 {
	if len(e.Slots) == 0 {
		return nil
	}
	return e.Slots[len(e.Slots)-1].Settings
}

// observed is what was measured with the setting that is in force now.
type observed struct {
	seconds     float64
	sums, peaks map[string]float64
	settings    map[string]float64
}

// observeSetting adds up the slots in which a setting was what it is now. Older ones than
// the last change of it do not count.
func (e Evidence) observeSetting(name string) observed {
	o := observed{sums: map[string]float64{}, peaks: map[string]float64{}, settings: e.current()}
	for _, slot := range slices.Backward(e.Slots) {
		if slot.Settings[name] != o.settings[name] {
			break
		}
		o.seconds += slot.Seconds
		for k, v := range slot.Sums {
			o.sums[k] += v
		}
		for k, v := range slot.Peaks {
			o.peaks[k] = max(o.peaks[k], v)
		}
	}
	return o
}

func (o observed) perHour(name string) float64 { return o.sums[name] / o.seconds * 3600 }

func (o observed) duration() time.Duration {
	d := time.Duration(o.seconds) * time.Second
	if d >= time.Hour {
		return d.Round(time.Hour)
	}
	return d.Round(time.Minute)
}
