package tuning

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sample(work, workMem float64) *Sample {
	return &Sample{
		Counters: map[string]float64{"work": work},
		Levels:   map[string]float64{"connections": work / 10}, Settings: map[string]float64{"work_mem": workMem},
	}
}

// Differences are added up by the hour and by the settings; what is not known is left out.
func TestRecord(t *testing.T) {
	r := NewRecorder("orders-0", "uid-0")
	for _, step := range []struct {
		at time.Duration
		s  *Sample
	}{
		{0, sample(10, 4)},
		{time.Minute, sample(30, 4)},
		{2 * time.Minute, sample(150, 4)},
		{3 * time.Minute, sample(5, 4)}, // a reset
		{4 * time.Minute, sample(6, 4)},
		{5 * time.Minute, nil}, // a replica
		{6 * time.Minute, sample(900, 4)},
		{16 * time.Minute, sample(1000, 4)}, // too long ago
		{17 * time.Minute, sample(1001, 8)}, // another setting
		{18 * time.Minute, sample(1003, 8)},
		{60 * time.Minute, sample(1500, 8)},
		{61 * time.Minute, sample(1507, 8)},
	} {
		r.Record(noon.Add(step.at), step.s)
	}
	r.Report() // changes nothing
	slots := r.Report().Slots
	if len(slots) != 2 {
		t.Fatalf("%+v", slots)
	}
	if !slots[0].Start.Equal(noon) || !slots[0].End.Equal(noon.Add(4*time.Minute)) || !slots[1].End.Equal(noon.Add(61*time.Minute)) {
		t.Errorf("the times are %+v", slots)
	}
	for i, want := range []struct{ seconds, work, samples, peak, setting float64 }{
		{180, 141, 3, 15, 4}, {120, 9, 2, 150.7, 8},
	} {
		s := slots[i]
		if s.Seconds != want.seconds || s.Sums["work"] != want.work || s.Sums[agentapi.TuningSamples] != want.samples ||
			s.Peaks["connections"] != want.peak || s.Settings["work_mem"] != want.setting {
			t.Errorf("slot %d: %+v, want %+v", i, s, want)
		}
	}
}

// With the query each hour is a slot of its own, and without it hours with the same settings
// are added up; neither changes what is kept.
func TestReportHours(t *testing.T) {
	r := NewRecorder("orders-0", "uid-0")
	for m := range 7 * 24 * 60 {
		s := sample(float64(m), 4)
		if s.ConfigHash = "before"; m > 6*24*60 {
			s.ConfigHash = "now"
		}
		r.Record(noon.Add(time.Duration(m)*time.Minute), s)
	}
	r.AddToReports(func(report *agentapi.Tuning) { report.Sizing = &agentapi.Sizing{CPU: 100} })
	ask := func(query string) agentapi.Tuning {
		t.Helper()
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, agentapi.TuningPath+query, nil))
		var tuning agentapi.Tuning
		if err := json.Unmarshal(answer.Body.Bytes(), &tuning); err != nil {
			t.Fatal(err)
		}
		return tuning
	}
	for range 2 {
		for _, query := range []string{"", "?" + agentapi.TuningHoursQuery + "=true"} {
			report := ask(query)
			if last := report.Slots[len(report.Slots)-1]; last.ConfigHash != "now" {
				t.Errorf("%q: the last slot is of the configuration %q", query, last.ConfigHash)
			}
			if report.Sizing == nil || report.Sizing.CPU != 100 {
				t.Errorf("%q: what others measured is %+v", query, report.Sizing)
			}
		}
		if slots := ask("").Slots; len(slots) != 1 || slots[0].Seconds < 24*3600 || slots[0].Seconds > 26*3600 {
			t.Errorf("of the last day are %d slots, the first of %.0f seconds", len(slots), slots[0].Seconds)
		}
		hours := ask("?" + agentapi.TuningHoursQuery + "=true").Slots
		if len(hours) < 121 || len(hours) > 123 {
			t.Fatalf("%d hours", len(hours))
		}
		for _, slot := range hours[1 : len(hours)-1] {
			if slot.Seconds != 3600 || slot.Sums["work"] != 60 || slot.End.Sub(slot.Start) != time.Hour || slot.Settings["work_mem"] != 4 || slot.ConfigHash == "" {
				t.Fatalf("%+v", slot)
			}
		}
	}
}

// A revision is published at most once in ten minutes, and five days are kept.
func TestRecordIsBounded(t *testing.T) {
	r := NewRecorder("orders-0", "uid-0")
	revisions := 0
	for m := range 3 * 24 * 60 {
		if r.Record(noon.Add(time.Duration(m)*time.Minute), sample(float64(m), float64(m/30))) != "" {
			revisions++
		}
	}
	if revisions > 3*24*6 || revisions < 2*2*3*24 { // two of each half an hour with the same settings
		t.Errorf("%d revisions in three days", revisions)
	}
	if n := len(r.ReportHours().Slots); n > slotsKept {
		t.Errorf("%d slots are kept", n)
	}
	slots := r.Report().Slots
	if slots[0].Start.Before(noon.Add(3*24*time.Hour - 26*time.Hour)) {
		t.Errorf("%d slots since %s", len(slots), slots[0].Start)
	}
}

// What suffices for a recommendation is published with the first measurement that makes it so,
// and not at the end of another ten minutes: after the start of an agent, and after a setting
// changed. No two revisions are published within ten minutes.
func TestPublishedOnceItSuffices(t *testing.T) {
	r := NewRecorder("orders-0", "uid-0")
	var published []time.Time
	publish := func(at time.Time, revision string) {
		if revision != "" {
			published = append(published, at)
		}
	}
	// Two goroutines measure once a minute, and a sample of the database takes a while. The
	// setting changes every 97 minutes; what others measured is new at the start and every hour.
	const changes = 97
	first, suffices, changed := map[int]time.Time{}, map[int]time.Time{}, 0
	for m := range 12 * 60 {
		tick := noon.Add(time.Duration(m) * time.Minute)
		if m%60 == 0 || m%60 < 25 && m > 0 && published[len(published)-1].Before(tick.Truncate(time.Hour)) {
			publish(tick, r.Renew(tick, m == 0))
		}
		changed = m / changes
		at := tick.Add(time.Duration(15-m%11) * time.Millisecond)
		publish(at, r.Record(at, sample(float64(m), float64(4+changed))))
		slots := r.Report().Slots
		if len(slots) == 0 || slots[len(slots)-1].Settings["work_mem"] != float64(4+changed) || slots[len(slots)-1].Seconds < agentapi.TuningLeastSeconds {
			continue
		}
		if suffices[changed].IsZero() {
			suffices[changed] = at
		}
		if first[changed].IsZero() && published[len(published)-1].Equal(at) {
			first[changed] = at
		}
	}
	for change := range changed + 1 {
		// The last revision before may be less than ten minutes ago by the time that a sample takes.
		if late := first[change].Sub(suffices[change]); first[change].IsZero() || late > time.Minute+time.Second {
			t.Errorf("the setting %d suffices at %s, and is published at %s", change, suffices[change], first[change])
		}
	}
	for i := 1; i < len(published); i++ {
		if published[i].Sub(published[i-1]) < publishInterval {
			t.Errorf("published at %s and at %s", published[i-1], published[i])
		}
	}
}

// A kill is published at once, also while a measurement is about to suffice, and settings that
// change again and again do not keep what was measured from the operator.
func TestPublishedWhileItDoesNotSuffice(t *testing.T) {
	r := NewRecorder("orders-0", "uid-0")
	r.Renew(noon, true)
	revisions := 0
	for m := 1; m <= 120; m++ {
		if r.Record(noon.Add(time.Duration(m)*time.Minute), sample(float64(m), float64(m/5))) != "" {
			revisions++
		}
	}
	if revisions != 3 {
		t.Errorf("%d revisions in two hours", revisions)
	}
	now := noon.Add(131 * time.Minute)
	for m := 121; m <= 131; m++ {
		r.Record(noon.Add(time.Duration(m)*time.Minute), sample(float64(m), float64(m/5)))
	}
	if revision := r.Renew(now, false); revision != "" {
		t.Errorf("what is not urgent is published at %s", revision)
	}
	if r.Renew(now, true) == "" {
		t.Error("a kill is not published")
	}
}

// A measurement is taken once a minute. One that fails or takes too long is reported, and
// what happened around it does not count.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var published []string
		minutes := 0
		measure := func(ctx context.Context) (*Sample, error) {
			minutes++
			if minutes == 20 {
				<-ctx.Done()
				return sample(0, 4), ctx.Err()
			}
			return sample(float64(minutes), 4), nil
		}
		r := NewRecorder("orders-0", "uid-0")
		ctx, cancel := context.WithTimeout(t.Context(), 31*time.Minute)
		defer cancel()
		r.Follow(ctx, slog.New(slog.NewTextHandler(&out, nil)), measure, func(revision string) { published = append(published, revision) })
		if lines := strings.Count(out.String(), "a measurement for tuning is missing"); lines != 1 || !strings.Contains(out.String(), context.DeadlineExceeded.Error()) {
			t.Errorf("reported is %q", out.String())
		}
		// From the first to the 19th, and from the 21st to the 30th or 31st.
		if slots := r.Report().Slots; minutes < 30 || len(slots) != 1 || slots[0].Sums[agentapi.TuningSamples] != float64(minutes-3) {
			t.Errorf("%d measurements, and kept is %+v", minutes, slots)
		}
		if len(published) != 2 || published[0] == published[1] { // after 11 and 22 minutes or so
			t.Errorf("published is %q", published)
		}
	})
}
