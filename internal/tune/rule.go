package tune

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	kibibyte = 1 << 10
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// rule knows one setting: by what evidence it is raised, and how far.
type rule struct {
	name string
	// field of the spec that declares it.
	field string
	// unit that values are a multiple of, in bytes. It is the current value where that is
	// less, and in any case the value of the setting unitFrom, where that was measured.
	unit     float64
	unitFrom string
	// units are the suffixes of sizes, from kibibytes on. A number without one counts plain
	// bytes; 0 for one.
	units []string
	plain float64
	// rounding is what the server rounds a declared value to, in bytes, if not to unitFrom.
	rounding float64
	// restart says that the members restart for it.
	restart bool
	// memory says that it counts for the envelope.
	memory bool
	// disk says that a larger value takes more of the volume.
	disk bool
	// most is the largest value; 0 where none may be advised.
	most func(s Spec) float64
	// judge says what speaks for a larger value; empty for nothing.
	judge func(o observed, now float64) string
	// trial is by what a larger value is judged that is tried; nil of a setting that is only
	// recommended.
	trial *measure
}

// rules of an engine, the most urgent first. None is of a setting that durability rests on.
func rules(e Engine) []rule {
	switch e {
	case PostgreSQL:
		return postgresRules
	case MySQL:
		return mysqlRules
	case Etcd:
		return etcdRules
	}
	return nil
}

func findRule(e Engine, name string) *rule {
	all := rules(e)
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// Names are the settings that may be recommended, of an engine.
func Names(e Engine) []string {
	var names []string
	for _, r := range rules(e) {
		names = append(names, r.name)
	}
	return names
}

// Field is the field of the spec that declares a setting; empty of one that is never
// recommended.
func Field(e Engine, name string) string {
	if r := findRule(e, name); r != nil {
		return r.field
	}
	return ""
}

func shareOfMemory(share float64) func(Spec) float64 {
	return func(s Spec) float64 { return share * float64(s.Memory) }
}

func shareOfVolume(share float64) func(Spec) float64 {
	return func(s Spec) float64 { return share * float64(s.Volume) }
}

// memoryUse is what an engine's settings may take together, in bytes.
func memoryUse(e Engine, settings, peaks map[string]float64) float64 {
	connections := max(peaks[agentapi.TuningConnections], 10)
	switch e {
	case PostgreSQL:
		return settings["shared_buffers"] + connections*settings["work_mem"] +
			max(settings["autovacuum_max_workers"], 1)*settings["maintenance_work_mem"]
	case MySQL:
		// What the server takes beside its buffer pool, and each connection.
		return settings["innodb_buffer_pool_size"] + 640*mebibyte + connections*4*mebibyte
	}
	return settings["quota"]
}

// propose is the value to change to; 0 for none. It is at most twice the current one, and
// keeps memory in the envelope.
func (r rule) propose(s Spec, o observed) float64 {
	now := o.settings[r.name]
	value := min(now*MostStep, r.most(s))
	if r.memory {
		if s.Memory <= 0 {
			return 0
		}
		value = min(value, r.fitMemory(s, o, value))
	}
	unit := min(r.unit, now)
	if from := o.settings[r.unitFrom]; from > 0 {
		unit = from
	}
	value = math.Floor(value/unit+1e-9) * unit
	if value < now*leastStep {
		return 0
	}
	return value
}

// fitMemory is the largest value, up to the one that is wanted, with which all memory
// settings stay in the envelope: what they take is linear in each of them.
func (r rule) fitMemory(s Spec, o observed, wanted float64) float64 {
	most := MemoryShare * float64(s.Memory)
	use := func(value float64) float64 {
		settings := maps.Clone(o.settings)
		settings[r.name] = value
		return memoryUse(s.Engine, settings, o.peaks)
	}
	none := use(0)
	each := (use(wanted) - none) / wanted
	return (most - none) / each
}

// Suffixes of sizes, from kibibytes on.
var (
	postgresUnits = []string{"kB", "MB", "GB"}
	mysqlUnits    = []string{"K", "M", "G"}
	quantityUnits = []string{"Ki", "Mi", "Gi"}
)

// format writes a size as the spec declares it, in the largest unit that divides it.
func (r rule) format(v float64) string {
	v = math.Floor(v / kibibyte)
	unit := 0
	for unit < len(r.units)-1 && v > 0 && math.Mod(v, kibibyte) == 0 {
		v /= kibibyte
		unit++
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + r.units[unit]
}

// parse reads a size as format writes it, or a number.
func (r rule) parse(text string) (float64, bool) {
	factor := max(r.plain, 1)
	for i, suffix := range r.units {
		if number, found := strings.CutSuffix(text, suffix); found {
			text, factor = number, math.Pow(kibibyte, float64(i+1))
			break
		}
	}
	value, err := strconv.ParseFloat(text, 64)
	return value * factor, err == nil && value > 0 && !math.IsInf(value, 0)
}

// isMeasured says whether what was observed is of the value that is declared, as far as
// that can be read.
func (r rule) isMeasured(declared string, o observed) bool {
	value, known := r.parse(declared)
	rounding := max(r.rounding, o.settings[r.unitFrom], 1)
	return !known || math.Abs(value-o.settings[r.name]) < rounding
}

// describeBytes writes a number of bytes for people.
func describeBytes(v float64) string {
	switch {
	case v >= gibibyte:
		return fmt.Sprintf("%.1f GiB", v/gibibyte)
	case v >= mebibyte:
		return fmt.Sprintf("%.0f MiB", v/mebibyte)
	}
	return fmt.Sprintf("%.0f KiB", v/kibibyte)
}
