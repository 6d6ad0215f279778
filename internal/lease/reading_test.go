package lease

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// renewedLease is renewed at its interval, a little late each time, until its holder is
// gone.
type renewedLease struct {
	at      []time.Duration
	latency time.Duration
}

func renew(r *rand.Rand, t Timing, first, until time.Duration) renewedLease {
	l := renewedLease{latency: 5 * time.Millisecond}
	for now := first; now < until; now += t.Renewal() + time.Duration(r.Int64N(int64(200*time.Millisecond))) {
		l.at = append(l.at, now)
	}
	return l
}

func (l renewedLease) read(sent time.Duration) Reading {
	renewals := 0
	for _, at := range l.at {
		if at <= sent {
			renewals++
		}
	}
	return Reading{Answer: Done, Version: Version{"u", strconv.Itoa(renewals)}, Sent: sent, Received: sent + l.latency}
}

// An observer finds a Lease expired soon after the duration since its last renewal,
// whenever it began to read, and reads about as often as the holder renews.
func TestReadingsKeepCloseBehindRenewals(t *testing.T) {
	const tick = 100 * time.Millisecond
	for _, duration := range []time.Duration{MinDuration, MaxDuration} {
		limits := timing(t, duration)
		for seed := range uint64(200) {
			r := rand.New(rand.NewPCG(seed, 0))
			settled := 5 * limits.Renewal()
			l := renew(r, limits, time.Duration(r.Int64N(int64(limits.Renewal()))), settled+20*limits.Renewal())
			last := l.at[len(l.at)-1]
			var e Expiry
			var readings int
			now, sent := time.Duration(r.Int64N(int64(tick))), -limits.ReadGap()
			for ; !e.HasExpired(e.version, limits); now += tick {
				if now-sent < e.UntilReading(limits, limits) {
					continue
				}
				sent = now
				e = e.RecordReading(l.read(now), limits)
				if now > settled && now < last {
					readings++
				}
				if now > last+2*limits.Duration() {
					t.Fatalf("seed %d: not expired", seed)
				}
			}
			if late := e.last - last - limits.Duration(); late < 0 || late > limits.Duration()/20+2*tick {
				t.Errorf("%s, seed %d: expired %s after the duration since the last renewal", duration, seed, late)
			}
			if readings > 20*9/4 {
				t.Errorf("%s, seed %d: %d readings for 20 renewals", duration, seed, readings)
			}
		}
	}
}

// A duration that was longer before is waited for at the holder's pace.
func TestReadingsOfALongerDuration(t *testing.T) {
	pace, expiry := timing(t, MinDuration), timing(t, MaxDuration)
	l := renewedLease{at: []time.Duration{0}, latency: 5 * time.Millisecond}
	e := Expiry{}.RecordReading(l.read(0), expiry)
	if got := e.UntilReading(pace, expiry); got <= 0 || got > pace.Renewal() {
		t.Errorf("the next reading is due after %s", got)
	}
	for sent := time.Second; sent <= pace.Duration()*2; sent += time.Second {
		e = e.RecordReading(l.read(sent), expiry)
	}
	if got := e.UntilReading(pace, expiry); got != pace.Duration()/25 {
		t.Errorf("long before it expires, the next reading is due after %s", got)
	}
}

// A Lease that stays as it is is read at the interval of renewals again.
func TestReadingsOfAnExpiredLease(t *testing.T) {
	limits := timing(t, 0)
	l := renewedLease{at: []time.Duration{0}}
	var e Expiry
	for sent := time.Duration(0); sent <= limits.Duration(); sent += limits.Renewal() {
		e = e.RecordReading(l.read(sent), limits)
	}
	if got := e.UntilReading(limits, limits); got != limits.Renewal() {
		t.Errorf("the next reading is due after %s", got)
	}
	if got := (Expiry{}).UntilReading(limits, limits); got != limits.Renewal() {
		t.Errorf("after an outage, the next reading is due after %s", got)
	}
}
