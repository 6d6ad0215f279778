package member

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
