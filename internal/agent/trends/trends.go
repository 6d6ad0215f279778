// Package trends keeps, beside a database, how its volume fills, and what CPU and memory its
// container uses. It says when the volume is full, and what a member needs. It measures both
// once a minute, and keeps what it measured in two files on the volume: nothing is written to
// the API server, and a restart loses an hour at most.
package trends

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/sampling"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/capacity"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// remindInterval is between two reports of what lasts.
const remindInterval = 12 * time.Hour

// Options of a Recorder.
type Options struct {
	Log *slog.Logger
	// Volume is measured, and keeps what was.
	Volume Volume
	// Note takes an event for status.insights.
	Note func(loginsight.Event)
}

// Recorder keeps trends. It is safe for use by several goroutines.
type Recorder struct {
	o Options

	mu       sync.Mutex
	history  capacity.History
	forecast capacity.Forecast
	// reported is the worst class that was reported of late, as its rank in urgency, and
	// reportedAt when.
	reported   int
	reportedAt time.Time
}

// NewRecorder returns a Recorder that has measured nothing.
func NewRecorder(o Options) *Recorder { return &Recorder{o: o} }

// Follow measures until ctx ends. It does not save then.
func (r *Recorder) Follow(ctx context.Context) {
	if err := r.load(); err != nil {
		r.o.Log.Info("the history of the volume begins anew", "reason", err.Error())
	}
	sampling.Follow(ctx, r.Measure, r.save)
}

// Measure takes a sample, and reports a volume that fills. A volume whose size is not known
// is left out, and so is one while the database does not serve: a member that copies its
// data from another fills its volume on purpose.
func (r *Recorder) Measure(now time.Time) {
	space := r.o.Volume.Space()
	if space.Total <= 0 || !r.o.Volume.Serves() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.history.Add(now, space.Total-space.Free) {
		r.forecast = r.history.ForecastFull(space.Free)
		r.noteForecast(now)
	}
}

// urgencies are the classes by which a forecast is reported, the most urgent first.
var urgencies = []struct {
	within time.Duration
	class  string
}{
	{24 * time.Hour, loginsight.VolumeFullInADay},
	{4 * 24 * time.Hour, loginsight.VolumeFullInFourDays},
	{14 * 24 * time.Hour, loginsight.VolumeFullInTwoWeeks},
}

// noteForecast reports a volume that fills: once in twelve hours, and at once where it has
// become more urgent.
func (r *Recorder) noteForecast(now time.Time) {
	if !r.forecast.Fills {
		return
	}
	for rank, u := range urgencies {
		if r.forecast.Left >= u.within {
			continue
		}
		if !r.reportedAt.IsZero() && now.Sub(r.reportedAt) < remindInterval && rank >= r.reported {
			return
		}
		r.reported, r.reportedAt = rank, now
		r.o.Note(loginsight.Event{Class: loginsight.FindClass(u.class), Time: now, Value: r.forecast.Left.Hours() / 24})
		return
	}
}

// Forecast is when the volume is full, as of the last five minutes.
func (r *Recorder) Forecast() capacity.Forecast {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forecast
}

// Report adds the forecast to an answer, once there is one.
func (r *Recorder) Report(into *agentapi.Insights) {
	if f := r.Forecast(); f.Known {
		into.Volume = &agentapi.VolumeForecast{
			Fills: f.Fills, Seconds: int64(f.Left.Seconds()), BytesPerDay: int64(f.Rate),
			ShownSeconds: int64(f.Shown.Seconds()), Trend: f.Trend,
		}
	}
}
