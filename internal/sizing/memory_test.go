package sizing

import (
	"testing"
	"time"
)

func counters() Counters {
	return Counters{Anonymous: gibibyte, Shared: gibibyte / 2, Kernel: 64 * mebibyte, ActiveFile: 2 * gibibyte, Limit: 4 * gibibyte}
}

const own = gibibyte + gibibyte/2 + 64*mebibyte

// Use is the difference between two measurements of one container.
func TestMeasure(t *testing.T) {
	var m Meter
	c := counters()
	if _, known := m.Measure(monday, c); known {
		t.Error("there is nothing to compare with")
	}
	c.CPU, c.Periods, c.Throttled, c.StalledCPU = 90*time.Second, 600, 150, 15*time.Second
	u, known := m.Measure(monday.Add(time.Minute), c)
	if want := (Usage{CPU: 1500, Periods: 600, Throttled: 150, Stalled: 0.25, Memory: own, Held: own + 2*gibibyte}); !known || u != want {
		t.Errorf("%v %+v, want %+v", known, u, want)
	}
	c.CPU += time.Minute
	if _, known := m.Measure(monday.Add(10*time.Minute), c); known {
		t.Error("nine minutes count as one")
	}
	fresh := counters()
	if _, known := m.Measure(monday.Add(11*time.Minute), fresh); known {
		t.Error("another container's counters are compared")
	}
	fresh.StalledCPU = -1
	if u, known := m.Measure(monday.Add(12*time.Minute), fresh); !known || u.Stalled != 0 {
		t.Errorf("%v %+v", known, u)
	}
}

// hotSet is what a container needs beside its own memory, after so many minutes in each of
// which so much is read back and something waits for so long.
func hotSet(minutes int, readBack int64, waits time.Duration) int64 {
	var m Meter
	c := counters()
	if waits < 0 {
		c.StalledMemory = -1
	}
	var u Usage
	for n := range minutes + 1 {
		u, _ = m.Measure(monday.Add(time.Duration(n)*time.Minute), c)
		c.ReadBack += readBack
		if waits >= 0 {
			c.StalledMemory += waits
		}
	}
	return u.Memory - own
}

// Page cache is no need. The active pages are one where what was dropped is read back again
// and again, and something waits for it; how much that is, is a need, too.
func TestHotSet(t *testing.T) {
	for name, c := range map[string]struct {
		minutes  int
		readBack int64
		waits    time.Duration
		want     int64
	}{
		"nothing is read back":    {60, 0, time.Second, 0},
		"little is":               {60, mebibyte, time.Second, 0},
		"a backup reads all once": {8, 500 * mebibyte, time.Second, 0},
		"again and again":         {60, 500 * mebibyte, time.Second, 2*gibibyte + 500*mebibyte},
		"and more than there is":  {60, 9 * gibibyte, time.Second, 4 * gibibyte},
		"nothing waits for it":    {60, 500 * mebibyte, 100 * time.Millisecond, 0},
		"it is not known whether something does, and much is read": {60, 500 * mebibyte, -1, 2*gibibyte + 500*mebibyte},
		"it is not known, and less is read":                        {60, 100 * mebibyte, -1, 0},
	} {
		if got := hotSet(c.minutes, c.readBack, c.waits); got != c.want {
			t.Errorf("%s: %d MiB, want %d MiB", name, got/mebibyte, c.want/mebibyte)
		}
	}
}
