package tuning

import (
	"testing"
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

// A revision is published at most once in ten minutes, and a day is kept.
func TestRecordIsBounded(t *testing.T) {
	r := NewRecorder("orders-0", "uid-0")
	revisions := 0
	for m := range 3 * 24 * 60 {
		if r.Record(noon.Add(time.Duration(m)*time.Minute), sample(float64(m), float64(m/30))) != "" {
			revisions++
		}
	}
	if revisions > 3*24*6 || revisions < 3*24*6-80 {
		t.Errorf("%d revisions in three days", revisions)
	}
	slots := r.Report().Slots
	if len(slots) > slotsKept || slots[0].Start.Before(noon.Add(3*24*time.Hour-26*time.Hour)) {
		t.Errorf("%d slots since %s", len(slots), slots[0].Start)
	}
}
