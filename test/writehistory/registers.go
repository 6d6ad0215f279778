package writehistory

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Action is what an operation on a register does.
type Action string

// The actions. A swap writes Value where it finds Old.
const (
	Read  Action = "read"
	Set   Action = "set"
	Swap  Action = "swap"
	empty        = 0 // the value of a register that nothing was written to
)

// Operation on a register.
type Operation struct {
	Client, Register int
	Action           Action
	// Value is what a set or a swap writes. No other operation writes it.
	Value int64
	// Old is what a swap expects. Swapped says that it was there.
	Old     int64
	Swapped bool
	// Found is what a read found, or a swap that did not find what it expected.
	Found int64
	// Sent and Ended are since the history began. What was not acknowledged may have
	// been done or not, at any time after it was sent.
	Sent, Ended  time.Duration
	Acknowledged bool
	// Timeline on which it was done.
	Timeline int64
}

// CheckRegisters reports registers whose operations no order explains that has each
// take effect between its request and its answer.
//
// With durable, which is for synchronous replication, the order spans all timelines and
// begins with empty registers. Without, each timeline has an order of its own and begins
// with any value: a failover may lose the end of the timeline before it.
//
// A register that could not be judged within the timeout is an error, too.
func CheckRegisters(operations []Operation, durable bool, timeout time.Duration) error {
	var errs []error
	for _, part := range splitOperations(operations, durable) {
		switch result := porcupine.CheckOperationsTimeout(registerModel(durable), part.history, timeout); result {
		case porcupine.Illegal:
			errs = append(errs, fmt.Errorf("%s: no order explains its %d operations", part.name, len(part.history)))
		case porcupine.Unknown:
			errs = append(errs, fmt.Errorf("%s: its %d operations were not judged within %s", part.name, len(part.history), timeout))
		}
	}
	return errors.Join(limitErrors(errs)...)
}

// operationsPart is judged by itself.
type operationsPart struct {
	name    string
	history []porcupine.Operation
}

// selectFound are the values that an operation found: what no operation found may as
// well not have been written.
func selectFound(operations []Operation) map[int64]bool {
	found := map[int64]bool{}
	for _, o := range operations {
		switch {
		case !o.Acknowledged:
		case o.Action == Swap && o.Swapped:
			found[o.Old] = true
		case o.Action != Set:
			found[o.Found] = true
		}
	}
	return found
}

// partKey is a register, and its timeline unless all of them are one part.
type partKey struct {
	register int
	timeline int64
}

func splitOperations(operations []Operation, durable bool) []operationsPart {
	var order []partKey
	done := map[partKey][]Operation{}
	found := selectFound(operations)
	var uncertain []Operation
	for _, o := range operations {
		switch {
		case !o.Acknowledged && o.Action != Read && found[o.Value]:
			uncertain = append(uncertain, o)
			continue
		case !o.Acknowledged: // no other operation depends on it
			continue
		case o.Action == Swap && !o.Swapped && o.Found == o.Old:
			continue // another one was first, and what that wrote was not returned
		}
		key := partKey{o.Register, o.Timeline}
		if durable {
			key.timeline = 0
		}
		if done[key] == nil {
			order = append(order, key)
		}
		done[key] = append(done[key], o)
	}
	var parts []operationsPart
	for _, key := range order {
		part := newPart(key, done[key], uncertain)
		if !durable {
			part.name += fmt.Sprintf(" on timeline %d", key.timeline)
		}
		parts = append(parts, part)
	}
	return parts
}

// newPart is the history of a register: what was done, and what may have been at any
// time after it was sent.
func newPart(key partKey, done, uncertain []Operation) operationsPart {
	part := operationsPart{name: fmt.Sprintf("register %d", key.register)}
	for _, o := range done {
		part.history = append(part.history, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Sent), Return: int64(o.Ended)})
	}
	for _, o := range uncertain {
		if o.Register == key.register {
			part.history = append(part.history, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Sent), Return: math.MaxInt64})
		}
	}
	return part
}

// registerState is what a register holds, if that is known.
type registerState struct {
	known bool
	value int64
}

func registerModel(durable bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return registerState{known: durable, value: empty} },
		Step: func(state, input, _ any) (bool, any) {
			return stepRegister(state.(registerState), input.(Operation)) //nolint:forcetypeassert // its own
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// stepRegister says whether an operation may follow in a state, and the state after it.
func stepRegister(now registerState, o Operation) (bool, registerState) {
	written := registerState{known: true, value: o.Value}
	switch {
	case o.Action == Set:
		return true, written
	case o.Action == Swap && (!o.Acknowledged || o.Swapped):
		if now.known && now.value != o.Old {
			return !o.Acknowledged, now
		}
		return true, written
	default:
		return !now.known || now.value == o.Found, registerState{known: true, value: o.Found}
	}
}
