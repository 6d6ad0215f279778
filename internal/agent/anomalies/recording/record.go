package recording

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
	"github.com/holdfast-db/holdfast/internal/anomaly"
)

const (
	// Directory is the environment variable that says where a recording is written.
	Directory = "HOLDFAST_RECORD_TO"
	// Minutes is the environment variable that says how long the load runs without a fault.
	Minutes = "HOLDFAST_RECORD_MINUTES"

	usualInterval = 5 * time.Second
	// shortInterval is for go test -short, which tries the faults and records nothing of use.
	shortInterval = 500 * time.Millisecond
	// rounds is how often each fault is caused. faultRows are measured while it lasts, and
	// afterRows after it.
	rounds               = 2
	faultRows, afterRows = 9, 6
	// warmUp is not recorded.
	warmUp = 20 * time.Second
	// measureTimeout is the agent's.
	measureTimeout = 5 * time.Second
)

// Fault is a Cause, and how it is caused.
type Fault struct {
	Cause
	// Run causes it until ctx ends. Nil stops the load instead.
	Run func(ctx context.Context) error
}

// Recorder records one server.
type Recorder struct {
	Engine, Version string
	Signals         []anomaly.Signal
	// Measure is the agent's own.
	Measure func(ctx context.Context) (*anomalies.Sample, error)
	Load    *Load
	Faults  []Fault

	t   *testing.T
	out writer
	// before are the values at the time measured.
	before               []float64
	began, measured, due time.Time
	interval             time.Duration
	missing              int
}

// SkipUnlessAsked skips a test that records, which takes the better part of an hour.
func SkipUnlessAsked(t *testing.T) {
	t.Helper()
	if os.Getenv(Directory) == "" {
		t.Skipf("%s is not set: make record-anomalies does", Directory)
	}
}

// Record measures a server under a load and with each fault, and writes what it measured. The
// calm load is recorded before, between and after the rounds of faults.
func (r *Recorder) Record(t *testing.T) {
	t.Helper()
	minutes, err := strconv.Atoi(os.Getenv(Minutes))
	if err != nil {
		t.Fatalf("%s is no number: %v", Minutes, err)
	}
	file, err := os.Create(filepath.Join(os.Getenv(Directory), r.Engine+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	r.t, r.out, r.interval = t, writer{file}, usualInterval
	if testing.Short() {
		r.interval = shortInterval
	}
	ctx, cancel := context.WithCancel(t.Context())
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		r.Load.run(ctx)
	}()
	defer func() {
		cancel()
		<-loaded
		t.Logf("%d requests, of which %d failed; %d found the queue full; %d measurements are missing", r.Load.done.Load(), r.Load.failed.Load(), r.Load.dropped.Load(), r.missing)
	}()
	time.Sleep(min(warmUp, 10*r.interval))
	r.recordParts(minutes)
}

func (r *Recorder) recordParts(minutes int) {
	r.t.Helper()
	header := &Recording{Engine: r.Engine, Version: r.Version, Machine: os.Getenv("HOLDFAST_RECORD_MACHINE"), Began: time.Now(), Interval: r.interval}
	for _, s := range r.Signals {
		header.Signals = append(header.Signals, s.Name)
	}
	for _, f := range r.Faults {
		header.Causes = append(header.Causes, f.Cause)
	}
	r.began, r.due = header.Began, header.Began
	if err := r.out.writeHeader(header, []string{
		"Measurements of a real server, made by make record-anomalies with the agent's own code.",
		fmt.Sprintf("Each row is one measurement, %s after the one before: gauges, and of counters the rise per second. An empty field was not measured.", r.interval),
		fmt.Sprintf("The load is an open loop of %.0f requests a second on average, with bursts, and a job that scans for %s, %s after the one before.", r.Load.PerSecond, jobLength, jobEvery),
		"Part is calm for the load alone, after for what follows a fault, or the fault. A fault begins with the time of the row before its first one.",
		"Of each fault: name; signals that are expected to show it; what is done.",
	}); err != nil {
		r.t.Fatal(err)
	}
	rows := minutes * int(time.Minute/usualInterval) / (rounds + 1)
	r.measure(Calm, 1) // which has no rates, and is not written
	for range rounds {
		r.measure(Calm, rows)
		for _, f := range r.Faults {
			r.recordFault(f)
		}
	}
	r.measure(Calm, rows)
}

func (r *Recorder) recordFault(f Fault) {
	r.t.Helper()
	ctx, end := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	r.Load.away.Store(f.Run == nil)
	go func() {
		if f.Run == nil {
			ended <- nil
			return
		}
		ended <- f.Run(ctx)
	}()
	r.measure(f.Name, faultRows)
	end()
	if err := <-ended; err != nil {
		r.t.Errorf("%s was not caused: %v", f.Name, err)
	}
	r.Load.away.Store(false)
	r.measure(After, afterRows)
}

// measure writes so many measurements, one each interval.
func (r *Recorder) measure(part string, rows int) {
	r.t.Helper()
	for range rows {
		r.due = r.due.Add(r.interval)
		time.Sleep(time.Until(r.due))
		if time.Since(r.due) > r.interval {
			r.due = time.Now() // what is late does not make the next one early
		}
		r.measureOnce(part)
	}
}

// measureOnce leaves out what the agent would: a measurement that takes too long.
func (r *Recorder) measureOnce(part string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), measureTimeout)
	defer cancel()
	now := time.Now()
	sample, err := r.Measure(ctx)
	if err != nil {
		r.missing++
		r.t.Logf("a measurement is missing: %v", err)
		return
	}
	kept := rateOf(r.Signals, r.before, sample.Values, now.Sub(r.measured))
	first := r.before == nil
	r.before, r.measured = sample.Values, now
	if first {
		return
	}
	if err := r.out.writeRow(Row{At: now.Sub(r.began), Part: part, Values: kept}); err != nil {
		r.t.Fatal(err)
	}
}
