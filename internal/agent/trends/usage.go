package trends

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/cgroup"
	"github.com/holdfast-db/holdfast/internal/agent/sampling"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/sizing"
)

// UsageOptions are those of a UsageRecorder.
type UsageOptions struct {
	Log *slog.Logger
	// Volume keeps the history.
	Volume Volume
	// Container are the files of the container's control group.
	Container fs.FS
	// Publish has the operator ask for a new report, and says whether it will: it is asked
	// too often otherwise. What is not urgent may wait for other news.
	Publish func(now time.Time, urgent bool) bool
}

// UsageRecorder keeps what the container of the database uses. It is safe for use by several
// goroutines.
type UsageRecorder struct {
	o UsageOptions

	mu      sync.Mutex
	history sizing.History
	meter   sizing.Meter
	// last are the newest counters, and usage what was used in the last minute, where that
	// is known.
	last  *sizing.Counters
	usage *sizing.Usage
	// began is the first report of this agent, published the last one and publishedAt its time.
	began       bool
	published   agentapi.Sizing
	publishedAt time.Time
	// failing says that files could not be read: that is logged once.
	failing bool
}

// NewUsageRecorder returns a UsageRecorder that has measured nothing.
func NewUsageRecorder(o UsageOptions) *UsageRecorder { return &UsageRecorder{o: o} }

// Follow measures until ctx ends.
func (r *UsageRecorder) Follow(ctx context.Context) {
	if err := r.load(); err != nil {
		r.o.Log.Info("the history of CPU and memory begins anew", "reason", err.Error())
	}
	sampling.Follow(ctx, func(now time.Time) {
		r.Measure(now)
		r.publish(now)
	}, r.save)
}

// Measure takes a sample. What is used while the database does not serve counts for nothing
// but kills: a member that waits uses little, and one that copies its data much.
func (r *UsageRecorder) Measure(now time.Time) {
	counters, err := cgroup.Read(r.o.Container)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if !r.failing {
			r.o.Log.Info("CPU and memory of the container are not measured", "error", err.Error())
		}
		r.failing, r.last, r.usage = true, nil, nil
		return
	}
	r.failing = false
	before := r.last
	r.last, r.usage = &counters, nil
	if before != nil && counters.Kills > before.Kills {
		r.addKill(now)
	}
	u, known := r.meter.Measure(now, counters)
	if !known {
		return
	}
	r.usage = &u
	if r.o.Volume.Serves() {
		r.history.Add(now, u)
	}
}

// RecordKill takes in that an earlier container of the pod was killed for lack of memory: its
// own counters are gone with it.
func (r *UsageRecorder) RecordKill(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addKill(at)
}

// addKill counts a kill with the memory that there is now: a container is started again with
// what it had.
func (r *UsageRecorder) addKill(at time.Time) {
	if r.last == nil {
		counters, err := cgroup.Read(r.o.Container)
		if err != nil {
			return
		}
		r.last = &counters
	}
	if r.last.Limit <= 0 {
		return // another container took the node's memory, or this one: more of a limit does not help
	}
	if r.history.AddKill(at, r.last.Limit) {
		r.o.Log.Info("killed for lack of memory", "time", at, "limit", r.last.Limit)
	}
}

// publishedInterval is between two reports of what changed.
const publishedInterval = time.Hour

// publish has the operator ask, where there is something new.
func (r *UsageRecorder) publish(now time.Time) {
	r.mu.Lock()
	report := r.report(now)
	// How long was measured changes all the time, and is not new by itself.
	compared := report
	compared.Seconds = r.published.Seconds
	urgent := !r.began || report.Kills > r.published.Kills
	due := urgent || compared != r.published && now.Sub(r.publishedAt) >= publishedInterval || now.Sub(r.publishedAt) >= 12*time.Hour
	failing := r.failing
	r.mu.Unlock()
	if failing || !due || !r.o.Publish(now, urgent) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began, r.published, r.publishedAt = true, report, now
}

// Report adds what was measured to an answer.
func (r *UsageRecorder) Report(into *agentapi.Tuning) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failing && r.last != nil {
		report := r.report(time.Now())
		into.Sizing = &report
	}
}

// report is what was measured, with two digits of each number: what differs by less is the
// same.
func (r *UsageRecorder) report(now time.Time) agentapi.Sizing {
	e := r.history.Estimate(now)
	return agentapi.Sizing{
		Seconds: int64(e.Measured.Seconds()),
		CPU:     roundUp(e.CPU), MostCPU: roundUp(e.MostCPU),
		Throttled: math.Round(100*e.Throttled) / 100, Stalled: math.Round(100*e.Stalled) / 100,
		Memory: roundUp(float64(e.Memory)), MostMemory: roundUp(float64(e.MostMemory)), MostHeld: roundUp(float64(e.MostHeld)),
		Kills: e.Kills, LastKill: e.LastKill, KillMemory: e.KillMemory,
	}
}

// roundUp has two digits.
func roundUp(v float64) int64 {
	unit := 1.0
	for v/unit >= 100 {
		unit *= 10
	}
	return int64(math.Ceil(v/unit) * unit)
}
