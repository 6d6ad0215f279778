package writehistory

import (
	"math/rand/v2"
	"testing"
	"time"
)

// done is an acknowledged operation of a client on register 1.
func done(client int, action Action, value int64, timeline int64, sent, ended time.Duration) Operation {
	o := Operation{Client: client, Register: 1, Action: action, Value: value, Timeline: timeline, Sent: sent, Ended: ended, Acknowledged: true}
	if action == Read {
		o.Value, o.Found = 0, value
	}
	return o
}

// unknown has no answer.
func unknown(client int, value int64, sent time.Duration) Operation {
	return Operation{Client: client, Register: 1, Action: Set, Value: value, Sent: sent, Ended: sent + 1}
}

func swap(client int, old, value int64, swapped bool, timeline int64, sent, ended time.Duration) Operation {
	o := done(client, Swap, value, timeline, sent, ended)
	o.Old, o.Swapped = old, swapped
	return o
}

// refused is a swap that found another value than it expected.
func refused(client int, old, found int64, timeline int64, sent, ended time.Duration) Operation {
	o := swap(client, old, -1, false, timeline, sent, ended)
	o.Found = found
	return o
}

func TestCheckRegisters(t *testing.T) {
	const illegal = "no order explains"
	for _, test := range []struct {
		about         string
		operations    []Operation
		durable, each string // parts of the errors with all timelines as one, and each by itself
	}{
		{"none", nil, "", ""},
		{"a read of what was written", []Operation{done(1, Set, 5, 1, 0, 10), done(2, Read, 5, 1, 20, 30)}, "", ""},
		{"a read of the value before", []Operation{done(1, Set, 5, 1, 0, 10), done(1, Set, 6, 1, 20, 30), done(2, Read, 5, 1, 40, 50)}, illegal, illegal},
		{"a read during the write", []Operation{done(1, Set, 5, 1, 0, 10), done(1, Set, 6, 1, 20, 60), done(2, Read, 5, 1, 40, 50)}, "", ""},
		{"a read that went back", []Operation{done(1, Set, 5, 1, 0, 10), done(1, Set, 6, 1, 20, 90), done(2, Read, 6, 1, 30, 40), done(3, Read, 5, 1, 50, 60)}, illegal, illegal},
		{"a value that was not written", []Operation{done(1, Read, 9, 1, 0, 10)}, illegal, ""},
		{"a failover loses a write", []Operation{done(1, Set, 5, 1, 0, 10), done(1, Set, 6, 1, 20, 30), done(2, Read, 5, 2, 40, 50)}, illegal, ""},
		{"the successor goes back", []Operation{done(1, Set, 5, 2, 0, 10), done(2, Read, 4, 2, 40, 50)}, illegal, illegal},
		{"a write without an answer was done", []Operation{done(1, Set, 5, 1, 0, 10), unknown(2, 6, 20), done(1, Read, 6, 1, 30, 40)}, "", ""},
		{"and was not done", []Operation{done(1, Set, 5, 1, 0, 10), unknown(2, 6, 20), done(1, Read, 5, 1, 30, 40)}, "", ""},
		{"and is done later", []Operation{done(1, Set, 5, 1, 0, 10), unknown(2, 6, 20), done(1, Read, 5, 1, 30, 40), done(1, Read, 6, 1, 50, 60)}, "", ""},
		{"but not before it was sent", []Operation{done(1, Set, 5, 1, 0, 10), done(1, Read, 6, 1, 12, 15), unknown(2, 6, 20), done(1, Read, 6, 1, 30, 40)}, illegal, illegal},
		{"a swap of what is there", []Operation{done(1, Set, 5, 1, 0, 10), swap(1, 5, 6, true, 1, 20, 30), done(1, Read, 6, 1, 40, 50)}, "", ""},
		{"two swaps of one value", []Operation{done(1, Set, 5, 1, 0, 10), swap(1, 5, 6, true, 1, 20, 30), swap(2, 5, 7, true, 1, 20, 30)}, illegal, illegal},
		{"a swap finds another value", []Operation{done(1, Set, 5, 1, 0, 10), refused(1, 4, 5, 1, 20, 30)}, "", ""},
		{"a swap finds the value before", []Operation{done(1, Set, 5, 1, 0, 10), done(1, Set, 6, 1, 20, 30), refused(1, 4, 5, 1, 40, 50)}, illegal, illegal},
		{"a swap was overtaken", []Operation{done(1, Set, 5, 1, 0, 10), swap(1, 5, 6, true, 1, 20, 40), refused(2, 5, 5, 1, 25, 50)}, "", ""},
		{"a swap without an answer was done", []Operation{done(1, Set, 5, 1, 0, 10), {Register: 1, Action: Swap, Old: 5, Value: 6, Sent: 20}, done(1, Read, 6, 1, 30, 40)}, "", ""},
		{"but not where another value was", []Operation{done(1, Set, 5, 1, 0, 10), {Register: 1, Action: Swap, Old: 4, Value: 6, Sent: 20}, done(1, Read, 6, 1, 30, 40)}, illegal, illegal},
		{"registers do not concern each other", []Operation{done(1, Set, 5, 1, 0, 10), {Register: 2, Action: Read, Value: empty, Timeline: 1, Sent: 20, Ended: 30, Acknowledged: true}}, "", ""},
	} {
		t.Run(test.about, func(t *testing.T) {
			checkError(t, CheckRegisters(test.operations, true, time.Minute), test.durable)
			checkError(t, CheckRegisters(test.operations, false, time.Minute), test.each)
		})
	}
}

// A long history of one register with many writes without an answer is judged in time,
// and one read of an old value at its end is found.
func TestCheckRegistersLong(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	var operations []Operation
	var now time.Duration
	value := int64(empty)
	for n := range int64(3000) {
		now += 100
		sent, ended := now-time.Duration(random.IntN(90)), now+time.Duration(random.IntN(90))
		switch {
		case random.IntN(100) == 0: // it is never done
			operations = append(operations, unknown(int(n%4), -n-1, sent))
		case random.IntN(100) == 0: // it is done
			value = n + 1
			operations = append(operations, unknown(int(n%4), value, sent))
		case random.IntN(2) == 0:
			value = n + 1
			operations = append(operations, done(int(n%4), Set, value, 1, sent, ended))
		default:
			operations = append(operations, done(int(n%4), Read, value, 1, sent, ended))
		}
	}
	checkError(t, CheckRegisters(operations, true, time.Minute), "")
	operations = append(operations, done(1, Read, 1, 1, now+1000, now+1010))
	checkError(t, CheckRegisters(operations, true, time.Minute), "no order explains")
}
