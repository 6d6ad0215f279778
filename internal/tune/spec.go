package tune

import (
	"fmt"
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

const (
	// MemoryShare of the memory limit is what settings may take together.
	MemoryShare = 0.8
	// MostStep is the largest factor of one change.
	MostStep = 2
	// leastStep is the least factor that is worth a change.
	leastStep = 1.25
	// leastObserved is what must have been measured before there is a recommendation, in
	// seconds.
	leastObserved = agentapi.TuningLeastSeconds
	// longestEvidence is how long a measurement counts after its end.
	longestEvidence = 25 * time.Hour
)

// Spec is what a person declared, as far as it matters here.
type Spec struct {
	Engine Engine
	// Off says that nothing is recommended, and Apply that what is recommended is tried.
	Off, Apply bool
	// Window is when a trial may begin; nil for any time.
	Window *Window
	// ObserveHours are observed before a trial and in it.
	ObserveHours int
	// Hash of what is declared and changes what is measured: a trial ends when it is another.
	Hash string
	// Exclude are settings that are left alone.
	Exclude []string
	// Declared are the settings in the spec, by name.
	Declared map[string]string
	// Memory is the limit in bytes; 0 for none, and then no memory setting is raised.
	// Volume is the declared size in bytes.
	Memory, Volume int64
	// Resources are the declared ones.
	Resources Resources
}

// observed is what was measured with the setting that is in force now.
type observed struct {
	seconds     float64
	sums, peaks map[string]float64
	settings    map[string]float64
}

// listFresh are the slots that still count: a member that no longer leads keeps its own
// until its agent ends.
func listFresh(slots []agentapi.TuningSlot, now time.Time) []agentapi.TuningSlot {
	var fresh []agentapi.TuningSlot
	for _, slot := range slots {
		if now.Sub(slot.End) < longestEvidence {
			fresh = append(fresh, slot)
		}
	}
	return fresh
}

// observeSetting adds up the slots, the oldest first, in which a setting was what it is
// now. Older ones than its last change do not count.
func observeSetting(slots []agentapi.TuningSlot, name string) observed {
	o := observed{sums: map[string]float64{}, peaks: map[string]float64{}, settings: slots[len(slots)-1].Settings}
	for i := len(slots) - 1; i >= 0 && slots[i].Settings[name] == o.settings[name]; i-- {
		o.seconds += slots[i].Seconds
		for k, v := range slots[i].Sums {
			o.sums[k] += v
		}
		for k, v := range slots[i].Peaks {
			o.peaks[k] = max(o.peaks[k], v)
		}
	}
	return o
}

func (o observed) perHour(name string) float64 { return o.sums[name] / o.seconds * 3600 }

// duration is how long was measured, as people write it: 12 minutes, or 25 hours.
func (o observed) duration() string {
	if o.seconds >= 2*3600 {
		return fmt.Sprintf("%.0f hours", o.seconds/3600)
	}
	return fmt.Sprintf("%.0f minutes", o.seconds/60)
}
