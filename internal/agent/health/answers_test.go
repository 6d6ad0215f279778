package health

import (
	"testing"
	"time"
)

func TestAnswers(t *testing.T) {
	const s = time.Second
	type attempt struct {
		began, ended time.Duration
		answered     bool
	}
	for name, c := range map[string]struct {
		attempts      []attempt
		serving, hung bool
	}{
		"nothing was asked yet":                          {nil, true, false},
		"one answer that did not come":                   {[]attempt{{100 * s, 103 * s, false}}, true, false},
		"three that did not come":                        {[]attempt{{100 * s, 103 * s, false}, {104 * s, 107 * s, false}, {108 * s, 111 * s, false}}, false, false},
		"an answer after three that did not come":        {[]attempt{{100 * s, 103 * s, false}, {104 * s, 107 * s, false}, {108 * s, 111 * s, false}, {112 * s, 112 * s, true}}, true, false},
		"the asking process stood still for an hour":     {[]attempt{{100 * s, 100 * s, true}, {101 * s, 3700 * s, false}}, true, false},
		"it stood still before it asked":                 {[]attempt{{100 * s, 100 * s, true}, {3700 * s, 3703 * s, false}}, true, false},
		"refused at once, again and again, for a second": {[]attempt{{100 * s, 100 * s, false}, {101 * s, 101 * s, false}}, true, false},
		"asked in vain for a minute": {func() (all []attempt) {
			for n := range 15 {
				all = append(all, attempt{time.Duration(100+4*n) * s, time.Duration(103+4*n) * s, false})
			}
			return append(all, attempt{160 * s, 163 * s, false})
		}(), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var a Answers
			for _, at := range c.attempts {
				a = a.Observe(at.began, at.ended, at.answered)
			}
			if a.Serving() != c.serving || a.Hung() != c.hung {
				t.Errorf("silent for %s: serving %v, hung %v", a.Silent(), a.Serving(), a.Hung())
			}
		})
	}
}

// A database that accepts slowly is asked less often, and one that does not answer more.
func TestPauseBetweenAttempts(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ took, silent, want time.Duration }{
		{5 * ms, 0, healthInterval}, {100 * ms, 0, healthInterval}, {300 * ms, 0, 6 * time.Second}, {3 * time.Second, 0, silentLimit},
		{3 * time.Second, 3 * time.Second, silentInterval},
	} {
		if got := (Answers{silent: c.silent}).pauseAfter(c.took); got != c.want {
			t.Errorf("after %s, silent for %s: %s", c.took, c.silent, got)
		}
	}
}

// A database that accepts slowly is asked for long enough to see that it does;
// one that never accepts is hung after a minute that it was asked in.
func TestAnswersOfASlowDatabase(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		accepts time.Duration // after; 0 for never
		hung    bool
	}{
		"at once":     {10 * time.Millisecond, false},
		"after 5 s":   {5 * s, false},
		"after 15 s":  {15 * s, false},
		"after 1 min": {60 * s, true},
		"never":       {0, true},
	} {
		var a Answers
		now := 100 * s
		for range 100 {
			took, answered := a.connectLimit(), false
			if c.accepts > 0 && c.accepts <= took {
				took, answered = c.accepts, true
			}
			if a = a.observeConnect(now, now+took, answered); a.Hung() {
				break
			}
			now += took + s
		}
		if a.Hung() != c.hung {
			t.Errorf("accepts %s: hung %v after %s", name, a.Hung(), a.Silent())
		}
		if a.Hung() && (a.Silent() < HungLimit || a.Silent() > HungLimit+PatientTime+2*s) {
			t.Errorf("accepts %s: hung after %s", name, a.Silent())
		}
	}
	frozen := Answers{asked: 100 * s, silent: silentLimit}.observeConnect(100*s, 3700*s, false)
	if frozen.Hung() {
		t.Errorf("a process that stood still for an hour asked for %s", frozen.Silent())
	}
}
