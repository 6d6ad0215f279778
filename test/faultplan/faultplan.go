// Package faultplan draws faults from a seed: the same seed has the same faults in the
// same order, whatever becomes of them.
package faultplan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Fault is one that was drawn.
type Fault struct {
	// Kind of it, by name.
	Kind string
	// Primary has it strike the primary, if there is one; else Pick chooses a member.
	Primary bool
	// Pick and Variant choose among what there is then: both are not negative.
	Pick, Variant int
	// After is when it begins in its step, Length how long it lasts.
	After, Length time.Duration
}

// Step is one fault, or two that overlap, and the pause after them.
type Step struct {
	Faults []Fault
	Pause  time.Duration
}

// Limits of what is drawn.
type Limits struct {
	// Shortest and Longest are for the length of a fault, and the latter for a pause.
	Shortest, Longest time.Duration
	// Alone are kinds that overlap with no other one.
	Alone []string
}

// Source draws steps.
type Source struct {
	random *rand.Rand
	kinds  []string
	limits Limits
	alone  map[string]bool
}

// New is the source of a seed. It panics without a kind, or if the limits are none.
func New(seed uint64, kinds []string, limits Limits) *Source {
	if len(kinds) == 0 || limits.Shortest <= 0 || limits.Longest < limits.Shortest {
		panic(fmt.Sprintf("no faults can be drawn of %v within %+v", kinds, limits))
	}
	s := &Source{random: rand.New(rand.NewPCG(seed, 0)), kinds: kinds, limits: limits, alone: map[string]bool{}}
	for _, kind := range limits.Alone {
		s.alone[kind] = true
	}
	return s
}

// overlapOneIn of the steps have two faults.
const overlapOneIn = 3

// Next draws the next step.
func (s *Source) Next() Step {
	first, second := s.drawFault(), s.drawFault()
	overlap := s.random.IntN(overlapOneIn) == 0
	second.After = s.between(0, first.Length)
	step := Step{Faults: []Fault{first}, Pause: s.between(s.limits.Shortest/4, s.limits.Longest/2)}
	if overlap && !s.alone[first.Kind] && !s.alone[second.Kind] {
		step.Faults = append(step.Faults, second)
	}
	return step
}

// drawFault draws the same count of numbers for every kind.
func (s *Source) drawFault() Fault {
	return Fault{
		Kind:    s.kinds[s.random.IntN(len(s.kinds))],
		Primary: s.random.IntN(2) == 0,
		Pick:    s.random.IntN(1 << 16),
		Variant: s.random.IntN(1 << 16),
		Length:  s.between(s.limits.Shortest, s.limits.Longest),
	}
}

func (s *Source) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(most-least)+1))
}

// String is what was drawn, in one line.
func (f Fault) String() string {
	target := fmt.Sprintf("member %d", f.Pick)
	if f.Primary {
		target = "the primary"
	}
	return fmt.Sprintf("%s, %s, variant %d, for %s", f.Kind, target, f.Variant, f.Length.Round(time.Millisecond))
}

// String is the step in one line.
func (s Step) String() string {
	var all []string
	for _, f := range s.Faults {
		all = append(all, f.String())
	}
	return strings.Join(all, " with ")
}
