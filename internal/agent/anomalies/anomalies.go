// Package anomalies measures, beside a database, what is usual at each time of the day, and
// reports what is not. It measures once a minute, and keeps what it learned in a file on the
// volume for each role of the member: nothing is written to the API server, and a restart
// loses an hour at most.
package anomalies

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/sampling"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/anomaly"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

const (
	// measureTimeout is what a measurement may take.
	measureTimeout = 5 * time.Second
	// startJitter is by how many seconds the time of one start may seem to differ.
	startJitter = 10
)

// Signals are what is measured of a database.
type Signals struct {
	List []anomaly.Signal
	// Measure takes a sample while the database serves.
	Measure func(ctx context.Context) (*Sample, error)
}

// Sample is what a database says of itself at one time.
type Sample struct {
	// Values of the signals, in their order; NaN for one that is missing.
	Values []float64
	// Started is when the server did, in seconds since 1970.
	Started float64
	// Copying says that a backup or a joining member copies the data.
	Copying bool
}

// Options of a Recorder.
type Options struct {
	Log *slog.Logger
	// Dir is the volume, and Space measures it.
	Dir   string
	Space func() diskspace.Space
	// Status of the member.
	Status func() agentapi.Status
	// Note takes an event for status.insights.
	Note    func(loginsight.Event)
	Signals Signals
}

// circumstances are what a person or the operator changes on purpose.
type circumstances struct {
	role, settings string
	started        float64
}

// Recorder finds anomalies. It is safe for use by several goroutines.
type Recorder struct {
	o Options
	// measuring guards what a measurement changes. It is held while files are read and
	// written, so what is asked for does not wait for it.
	measuring sync.Mutex
	detector  *anomaly.Detector
	before    circumstances

	mu    sync.Mutex
	found []anomaly.Anomaly
}

// NewRecorder returns a Recorder that has measured nothing.
func NewRecorder(o Options) *Recorder { return &Recorder{o: o} }

// Follow measures until ctx ends. It does not save then.
func (r *Recorder) Follow(ctx context.Context) {
	sampling.Follow(ctx, func(now time.Time) { r.Measure(ctx, now) }, r.save)
}

// Measure takes a sample, and reports what is not as usual. A database that does not serve is
// left out.
func (r *Recorder) Measure(ctx context.Context, now time.Time) {
	status := r.o.Status()
	if !status.Serving {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	sample, err := r.o.Signals.Measure(ctx)
	if err != nil {
		r.o.Log.Info("a measurement of what is usual is missing", "error", err.Error())
		return
	}
	r.measuring.Lock()
	defer r.measuring.Unlock()
	r.compareCircumstances(now, circumstances{status.Role, status.ConfigHash, sample.Started}, sample.Copying)
	for _, a := range r.detector.Add(now, sample.Values) {
		r.o.Log.Info("a measurement is not as usual", "signal", a.Signal.Name, "observed", loginsight.RoundValue(a.Observed), "expected", loginsight.RoundValue(a.Expected), "cause", a.Cause)
		r.o.Note(loginsight.Event{Class: loginsight.FindClass(classOf(a)), Time: now})
	}
	found := r.detector.List(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = found
}

// compareCircumstances mutes what a planned change does at once. What is usual depends on the
// role, so each has its own.
func (r *Recorder) compareCircumstances(now time.Time, is circumstances, copying bool) {
	was := r.before
	r.before = is
	switch {
	case r.detector == nil:
		r.detector = anomaly.NewDetector(r.o.Signals.List, r.load(is.role, now))
		r.detector.Mark(now, anomaly.ServerStarted)
	case was.role != is.role:
		r.saveModel(was.role)
		r.detector = anomaly.NewDetector(r.o.Signals.List, r.load(is.role, now))
		r.detector.Mark(now, anomaly.RoleChanged)
	case math.Abs(was.started-is.started) > startJitter:
		r.detector.Mark(now, anomaly.ServerStarted)
	case was.settings != is.settings:
		r.detector.Mark(now, anomaly.SettingsChanged)
	case copying:
		r.detector.Mark(now, anomaly.DataCopied)
	}
}

func classOf(a anomaly.Anomaly) string {
	switch a.Signal.Kind {
	case anomaly.Errors:
		return loginsight.UnusualErrors
	case anomaly.Waits:
		return loginsight.UnusualWaits
	}
	return loginsight.UnusualLoad
}

// listFound is the last anomaly of each signal.
func (r *Recorder) listFound() []anomaly.Anomaly {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found // which is replaced, and never changed
}

// Report adds the anomalies of the last day to an answer.
func (r *Recorder) Report(into *agentapi.Insights) {
	for _, a := range r.listFound() {
		into.Anomalies = append(into.Anomalies, agentapi.Anomaly{
			Class: classOf(a), Signal: a.Signal.Name, Title: a.Signal.Title, Unit: a.Signal.Unit,
			Observed: loginsight.RoundValue(a.Observed), Expected: loginsight.RoundValue(a.Expected),
			Since: a.Since, Until: a.Until, Cause: string(a.Cause), CausedAt: a.CausedAt,
		})
	}
}

// Describe announces the family.
func (r *Recorder) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, metricfamily.Anomaly)
}

// Collect reports the signals that are not as usual now.
func (r *Recorder) Collect(into chan<- prometheus.Metric) {
	for _, a := range r.listFound() {
		if a.Lasts() {
			metricfamily.SendTo(into)(metricfamily.Anomaly, 1, a.Signal.Name)
		}
	}
}
