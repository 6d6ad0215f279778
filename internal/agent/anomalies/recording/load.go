package recording

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// tick is how often requests arrive. Those that find all workers busy wait in a queue.
	tick  = 50 * time.Millisecond
	queue = 400
	// Workers is how many requests run at once.
	Workers = 8
	// jobEvery is how often the job runs, for jobLength.
	jobEvery, jobLength = 100 * time.Second, 8 * time.Second
	// burstChance of each second that a burst begins.
	burstChance = 1.0 / 150
	// wanderKeeps and wanderStep make the load of each second differ from the one before.
	wanderKeeps, wanderStep = 0.9, 0.12
)

// Request is one kind of request.
type Request struct {
	// Weight is how many of all requests are of this kind.
	Weight float64
	// Do makes one, as the worker with a number from 0 to Workers-1.
	Do func(ctx context.Context, worker int) error
}

// Load is what clients do: an open loop, in which requests arrive whether or not the server
// is done with those before.
type Load struct {
	// PerSecond is the rate of requests, on average.
	PerSecond float64
	Requests  []Request
	// Job scans once.
	Job func(ctx context.Context) error

	away            atomic.Bool
	done, failed    atomic.Int64
	dropped         atomic.Int64
	began           time.Time
	wander, burst   float64
	burstEnds, next time.Time
}

// run loads the server until ctx ends.
func (l *Load) run(ctx context.Context) {
	l.began = time.Now()
	arrivals := make(chan Request, queue)
	var running sync.WaitGroup
	for worker := range Workers {
		running.Go(func() {
			for request := range arrivals {
				if err := request.Do(ctx, worker); err != nil && ctx.Err() == nil {
					l.failed.Add(1)
				}
				l.done.Add(1)
			}
		})
	}
	running.Go(func() { l.runJobs(ctx) })
	l.arrive(ctx, arrivals)
	close(arrivals)
	running.Wait()
}

func (l *Load) arrive(ctx context.Context, arrivals chan<- Request) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		expected := l.rate(now) * now.Sub(last).Seconds()
		last = now
		if l.away.Load() {
			continue
		}
		for range poisson(expected) {
			select {
			case arrivals <- l.pick():
			default:
				l.dropped.Add(1)
			}
		}
	}
}

// rate is how many requests arrive each second now: it varies within minutes and within
// seconds, and now and then there is a burst.
func (l *Load) rate(now time.Time) float64 {
	if now.After(l.next) {
		l.next = now.Add(time.Second)
		l.wander = wanderKeeps*l.wander + wanderStep*rand.NormFloat64()
		if rand.Float64() < burstChance {
			l.burst = 1.5 + 2.5*rand.Float64()
			l.burstEnds = now.Add(time.Duration(2+rand.IntN(8)) * time.Second)
		}
	}
	minutes := now.Sub(l.began).Minutes()
	rate := l.PerSecond * math.Exp(l.wander+0.3*math.Sin(2*math.Pi*minutes/7)+0.15*math.Sin(2*math.Pi*minutes/2.3))
	if now.Before(l.burstEnds) {
		rate *= l.burst
	}
	return rate
}

func (l *Load) pick() Request {
	total := 0.0
	for _, r := range l.Requests {
		total += r.Weight
	}
	at := rand.Float64() * total
	for _, r := range l.Requests {
		if at -= r.Weight; at < 0 {
			return r
		}
	}
	return l.Requests[0]
}

// runJobs runs the job now and then, twice a second.
func (l *Load) runJobs(ctx context.Context) {
	for {
		if sleep(ctx, jobEvery) {
			return
		}
		for end := time.Now().Add(jobLength); time.Now().Before(end); {
			if !l.away.Load() {
				if err := l.Job(ctx); err != nil && ctx.Err() == nil {
					l.failed.Add(1)
				}
			}
			if sleep(ctx, 500*time.Millisecond) {
				return
			}
		}
	}
}

// sleep says whether ctx has ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return true
	case <-time.After(d):
		return false
	}
}

func poisson(expected float64) int {
	n, product, limit := 0, rand.Float64(), math.Exp(-expected)
	for product > limit {
		n++
		product *= rand.Float64()
	}
	return n
}

// Repeat does something so many times a second until ctx ends: a client that asks for more
// than usual. It does not catch up what the server was too slow for.
func Repeat(ctx context.Context, perSecond float64, do func(context.Context) error) error {
	every := time.Duration(float64(time.Second) / perSecond)
	for !sleep(ctx, every) {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
