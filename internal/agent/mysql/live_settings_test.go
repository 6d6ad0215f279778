package mysql

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

// A configuration that the server answers with an error of another kind is tried again with
// growing pauses, not for ever; another configuration is tried at once.
func TestUnclearSettingsAreTriedAFewTimes(t *testing.T) {
	l := &liveSettings{}
	tried := 0
	for l.taken != "one" && tried < 100 {
		if tried++; tried > 1 && l.isTryDue("one") {
			t.Fatalf("attempt %d is due at once", tried)
		}
		before := l.unclear.retry
		l.unclear.retry = 0
		if !l.isTryDue("one") {
			t.Fatal("it is never due")
		}
		l.noteTried("one", true)
		if l.taken == "" && l.unclear.retry <= before {
			t.Errorf("attempt %d: pause until %s", tried, l.unclear.retry-clock.Boottime())
		}
	}
	if tried != unclearMost {
		t.Errorf("tried %d times", tried)
	}
	if !l.isTryDue("two") {
		t.Error("another configuration waits")
	}
	l.noteTried("two", false)
	if l.taken != "two" {
		t.Errorf("taken %q", l.taken)
	}
}
