package tune

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// declares says whether the spec has a setting.
func (s Spec) declares(name string) bool {
	for declared := range s.Declared {
		if strings.EqualFold(declared, name) {
			return true
		}
	}
	return false
}

// excludes says whether a setting is to be left alone. Names are the same in any case, as the
// server reads them.
func (s Spec) excludes(name string) bool {
	return slices.ContainsFunc(s.Exclude, func(excluded string) bool { return strings.EqualFold(excluded, name) })
}

// basisSettings are the settings that decide, with the memory and the volume, whether a
// tuned value fits.
var basisSettings = []string{"shared_buffers", "maintenance_work_mem", "autovacuum_max_workers", "max_connections"}

// Basis is a digest of what a kept value rests on: the memory, the volume and the declared
// memory settings. With another one the value may not fit, or be less than what is computed.
func (s Spec) Basis() string {
	text := fmt.Sprintf("memory %d, volume %d", s.Memory, s.Volume)
	for _, name := range basisSettings {
		for _, declared := range slices.Sorted(maps.Keys(s.Declared)) {
			if strings.EqualFold(declared, name) {
				text += fmt.Sprintf(", %s %q", name, s.Declared[declared])
			}
		}
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// explainRelease says why a kept value is no longer in force; empty where it is.
func (s Spec) explainRelease(t Tuned) string {
	if why := s.explainRefusal(t.Name, t.Value); why != "" {
		return why
	}
	if t.Basis != s.Basis() {
		return "the memory, the volume or a declared memory setting has changed since it was tried"
	}
	return ""
}

// explainRefusal says why a value is not tuned by the spec; empty where it may be.
func (s Spec) explainRefusal(name, value string) string {
	r := findTried(s.Engine, name)
	switch {
	case !s.Apply:
		return "spec.tuning.mode is not Apply"
	case r == nil:
		return "it is no setting that is tried"
	case s.declares(name):
		return r.field + " is declared"
	case s.excludes(name):
		return "spec.tuning.exclude has it"
	}
	v, known := r.parse(value)
	if !known || r.format(v) != value {
		return "its value is not understood"
	}
	if r.memory && s.Memory <= 0 {
		return "spec.resources.limits.memory is not declared"
	}
	if v > r.most(s) {
		return "it is more than the limit of memory or the volume allows"
	}
	return ""
}

// explainEnd says why a trial ends by the spec; empty where it goes on.
func (s Spec) explainEnd(t Trial) string {
	if why := s.explainRefusal(t.Name, t.Value); why != "" {
		return why
	}
	r := findTried(s.Engine, t.Name)
	value, _ := r.parse(t.Value)
	from, known := r.parse(t.From)
	switch {
	case !known || value > from*MostStep || value <= from:
		return "the value before it is not understood"
	case t.SpecHash != s.Hash:
		return "the spec has changed"
	}
	return ""
}
