// Package tuning measures a database for recommendations about settings, and for trials of
// them. It keeps what counters did in each hour of the last five days, with the settings that were in force, and
// answers the operator, who judges. It holds no text of a client.
package tuning

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// sampleInterval is between two measurements.
	sampleInterval = time.Minute
	// measureTimeout bounds what a measurement may take.
	measureTimeout = 5 * time.Second
	// publishInterval is the least time between two revisions.
	publishInterval = 10 * time.Minute
	// longestWait is for settings that change again and again: what was measured is published
	// then, though it does not suffice.
	longestWait = 3 * publishInterval
	// slotLength is the longest slot, and slotsKept bounds how many are kept: those of a
	// trial and of the day before it, and some that changes of settings have cut.
	slotLength = time.Hour
	slotsKept  = 136
	slotAge    = 5*24*time.Hour + 2*time.Hour
	// reportAge is how old a slot may be where those with the same settings are added up.
	reportAge = 25 * time.Hour
	// longestGap is the longest time between two samples whose difference counts.
	longestGap = 5 * time.Minute
)

// Sample is what a database says of itself at one time.
type Sample struct {
	// Counters only rise, but for a reset.
	Counters map[string]float64
	// Levels have a largest value.
	Levels map[string]float64
	// Settings that are in force, in bytes where they are sizes.
	Settings map[string]float64
	// ConfigHash is Status.ConfigHash of the member.
	ConfigHash string
}

// Measure takes a sample; nil while the member does not lead.
type Measure func(ctx context.Context) (*Sample, error)

// Recorder adds samples up.
type Recorder struct {
	mu       sync.Mutex
	tuning   agentapi.Tuning
	before   *Sample
	beforeAt time.Time
	// publishedAt is when the last revision was published; zero while there is none.
	publishedAt time.Time
	// addTo adds what others measured to each report; nil for nothing.
	addTo func(*agentapi.Tuning)
}

// NewRecorder returns the recorder of a pod.
func NewRecorder(pod, podUID string) *Recorder {
	return &Recorder{tuning: agentapi.Tuning{Pod: pod, PodUID: podUID}}
}

// AddToReports has further measurements in each report. It is called before the first one.
func (r *Recorder) AddToReports(add func(*agentapi.Tuning)) { r.addTo = add }

// Renew returns the revision to publish since what others measured is new; empty where the
// last one is too recent. What is not urgent also waits for a measurement of the database that
// is about to suffice: a revision now would hold that back for ten minutes, and has both then.
func (r *Recorder) Renew(now time.Time, urgent bool) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.publishedAt.IsZero() && now.Sub(r.publishedAt) < publishInterval || !urgent && r.isAwaited(now) {
		return ""
	}
	return r.publish(now)
}

func (r *Recorder) publish(now time.Time) string {
	r.publishedAt = now
	r.tuning.Revision = now.Format(time.RFC3339)
	return r.tuning.Revision
}

// isDue says whether what was measured is to be published: at most once in ten minutes, and
// rather when it suffices for a recommendation than shortly before.
func (r *Recorder) isDue(now time.Time) bool {
	since := now.Sub(r.publishedAt)
	return since >= publishInterval && (!r.isAwaited(now) || since >= longestWait && !r.publishedAt.IsZero())
}

// isAwaited says whether the database is measured, and was for less time with its settings than
// a recommendation needs.
func (r *Recorder) isAwaited(now time.Time) bool {
	if r.before == nil || now.Sub(r.beforeAt) > longestGap {
		return false
	}
	seconds := 0.0
	for _, slot := range slices.Backward(r.tuning.Slots) {
		if !maps.Equal(slot.Settings, r.before.Settings) || now.Sub(slot.Start) > reportAge {
			break
		}
		seconds += slot.Seconds
	}
	return seconds < agentapi.TuningLeastSeconds
}

// Follow measures until ctx ends, and publishes a revision at most once in ten minutes.
func (r *Recorder) Follow(ctx context.Context, log *slog.Logger, measure Measure, publish func(revision string)) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			sample := takeSample(ctx, log, measure)
			if revision := r.Record(time.Now().UTC(), sample); revision != "" {
				publish(revision)
			}
		}
	}
}

// takeSample measures once; nil also where that fails or takes too long.
func takeSample(ctx context.Context, log *slog.Logger, measure Measure) *Sample {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	sample, err := measure(ctx)
	if err != nil {
		log.Info("a measurement for tuning is missing", "error", err.Error())
		return nil
	}
	return sample
}

// Record adds what happened since the sample before; nil begins anew. It returns the
// revision to publish; empty for none.
func (r *Recorder) Record(now time.Time, s *Sample) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropOld(now)
	before, since := r.before, now.Sub(r.beforeAt)
	r.before, r.beforeAt = s, now
	if s == nil || before == nil || since <= 0 || since > longestGap || isReset(before, s) || !maps.Equal(before.Settings, s.Settings) {
		return ""
	}
	slot := r.findSlot(now, since, s)
	slot.End, slot.ConfigHash = now, s.ConfigHash
	slot.Seconds += since.Seconds()
	slot.Sums[agentapi.TuningSamples]++
	for name, value := range s.Counters {
		if rose := value - before.Counters[name]; rose > 0 {
			slot.Sums[name] += rose
		}
	}
	for name, value := range s.Levels {
		slot.Peaks[name] = max(slot.Peaks[name], value)
	}
	if !r.isDue(now) {
		return ""
	}
	return r.publish(now)
}

// isReset says whether a counter was set back, as at a restart.
func isReset(before, after *Sample) bool {
	for name, value := range after.Counters {
		if was, is := before.Counters[name]; !is || value < was {
			return true
		}
	}
	return false
}

func (r *Recorder) dropOld(now time.Time) {
	r.tuning.Slots = slices.DeleteFunc(r.tuning.Slots, func(slot agentapi.TuningSlot) bool { return now.Sub(slot.Start) > slotAge })
}

// findSlot returns the slot to add to.
func (r *Recorder) findSlot(now time.Time, since time.Duration, s *Sample) *agentapi.TuningSlot {
	if n := len(r.tuning.Slots); n > 0 {
		last := &r.tuning.Slots[n-1]
		if last.End.Truncate(slotLength).Equal(now.Truncate(slotLength)) && maps.Equal(last.Settings, s.Settings) {
			return last
		}
	}
	if len(r.tuning.Slots) >= slotsKept {
		r.tuning.Slots = slices.Delete(r.tuning.Slots, 0, 1)
	}
	r.tuning.Slots = append(r.tuning.Slots, agentapi.TuningSlot{
		Start: now.Add(-since), Sums: map[string]float64{}, Peaks: map[string]float64{}, Settings: maps.Clone(s.Settings),
	})
	return &r.tuning.Slots[len(r.tuning.Slots)-1]
}

// Report is what was measured until now: one slot for each time of the last day in which the
// settings were the same, so that an answer is small.
func (r *Recorder) Report() agentapi.Tuning { return r.complete(r.reportSlots()) }

// complete adds what others measured.
func (r *Recorder) complete(report agentapi.Tuning) agentapi.Tuning {
	if r.addTo != nil {
		r.addTo(&report)
	}
	return report
}

func (r *Recorder) reportSlots() agentapi.Tuning {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.tuning
	report.Slots = []agentapi.TuningSlot{}
	for _, slot := range r.tuning.Slots {
		if r.beforeAt.Sub(slot.Start) > reportAge {
			continue
		}
		if n := len(report.Slots); n > 0 && maps.Equal(report.Slots[n-1].Settings, slot.Settings) {
			addSlot(&report.Slots[n-1], slot)
			continue
		}
		slot.Sums, slot.Peaks = maps.Clone(slot.Sums), maps.Clone(slot.Peaks)
		report.Slots = append(report.Slots, slot)
	}
	return report
}

// ReportHours is what was measured until now, by the hour: a trial of a setting is judged by
// that.
func (r *Recorder) ReportHours() agentapi.Tuning { return r.complete(r.reportHours()) }

func (r *Recorder) reportHours() agentapi.Tuning {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := r.tuning
	report.Slots = make([]agentapi.TuningSlot, 0, len(r.tuning.Slots))
	for _, slot := range r.tuning.Slots {
		slot.Sums, slot.Peaks = maps.Clone(slot.Sums), maps.Clone(slot.Peaks)
		report.Slots = append(report.Slots, slot)
	}
	return report
}

// addSlot adds a later slot to one with the same settings.
func addSlot(to *agentapi.TuningSlot, slot agentapi.TuningSlot) {
	to.End, to.ConfigHash = slot.End, slot.ConfigHash
	to.Seconds += slot.Seconds
	for name, value := range slot.Sums {
		to.Sums[name] += value
	}
	for name, value := range slot.Peaks {
		to.Peaks[name] = max(to.Peaks[name], value)
	}
}

// ServeHTTP answers Tuning as JSON.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	report := r.Report
	if request.URL.Query().Get(agentapi.TuningHoursQuery) == "true" {
		report = r.ReportHours
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(report())
}
