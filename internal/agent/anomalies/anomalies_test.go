package anomalies

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/anomaly"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

var (
	monday = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	// measured are a counter and a level.
	measured = []anomaly.Signal{
		{Name: "commits", Title: "commits", Unit: "per second", Counter: true, Floor: 1},
		{Name: "lock_waits", Title: "locks", Kind: anomaly.Waits, Floor: 2},
	}
)

// member is what a Recorder sees of its member.
type member struct {
	status     agentapi.Status
	sample     Sample
	rate, wait float64
	total      float64
	failed     error
	free       int64
	noted      []string
}

func newMember() *member {
	return &member{status: agentapi.Status{Serving: true, Role: "primary", ConfigHash: "a"}, rate: 100, free: 1 << 40}
}

func (m *member) newRecorder(dir string) *Recorder {
	return NewRecorder(Options{
		Log: slog.New(slog.DiscardHandler), Dir: dir,
		Space:  func() diskspace.Space { return diskspace.Space{Total: 1 << 41, Free: m.free} },
		Status: func() agentapi.Status { return m.status },
		Note:   func(e loginsight.Event) { m.noted = append(m.noted, e.Class.Name) },
		Signals: Signals{List: measured, Measure: func(context.Context) (*Sample, error) {
			m.total += m.rate * 60
			s := m.sample
			s.Values = []float64{m.total, m.wait}
			return &s, m.failed
		}},
	})
}

// live measures for some minutes from a time, and returns the time after.
func (m *member) live(t *testing.T, r *Recorder, from time.Time, minutes int) time.Time {
	t.Helper()
	for i := range minutes {
		r.Measure(t.Context(), from.Add(time.Duration(i)*time.Minute))
	}
	return from.Add(time.Duration(minutes) * time.Minute)
}

// learn has the member live from Monday to Thursday.
func (m *member) learn(t *testing.T, r *Recorder) time.Time { return m.live(t, r, monday, 3*1440+60) }

func (r *Recorder) list() (all []agentapi.Anomaly) {
	var into agentapi.Insights
	r.Report(&into)
	return into.Anomalies
}

// A step is reported in words, in the metric and in the answer, once; and so is its end.
func TestStepIsReported(t *testing.T) {
	m := newMember()
	r := m.newRecorder(t.TempDir())
	now := m.learn(t, r)
	if len(m.noted) != 0 || len(r.list()) != 0 {
		t.Fatalf("what is usual is reported: %v %+v", m.noted, r.list())
	}
	m.rate, m.wait = 731, 40
	now = m.live(t, r, now, 10)
	if got := strings.Join(m.noted, " "); got != "UnusualLoad UnusualWaits" {
		t.Fatalf("noted: %q", got)
	}
	found := r.list()
	if len(found) != 2 || found[0].Signal != "commits" || found[0].Class != "UnusualLoad" || found[0].Observed != 730 || found[0].Expected != 100 ||
		!found[0].Since.Equal(monday.Add(73*time.Hour)) || !found[0].Until.IsZero() || found[0].Cause != "" {
		t.Errorf("%+v", found)
	}
	const help = "# HELP holdfast_anomaly 1 while a measurement of the member is far from what is usual at this time of the day; missing otherwise.\n# TYPE holdfast_anomaly gauge\n"
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(help+"holdfast_anomaly{signal=\"commits\"} 1\nholdfast_anomaly{signal=\"lock_waits\"} 1\n")); err != nil {
		t.Error(err)
	}
	m.rate, m.wait = 100, 0
	now = m.live(t, r, now, 15)
	if found := r.list(); len(m.noted) != 2 || len(found) != 2 || found[0].Until.IsZero() {
		t.Errorf("after its end: %v %+v", m.noted, found)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader("")); err != nil {
		t.Error(err)
	}
	m.live(t, r, now, 1450)
	if found := r.list(); len(found) != 0 {
		t.Errorf("after a day: %+v", found)
	}
}

// A planned change mutes what it does at once, and is named for what stays.
func TestPlannedChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*member)
		cause  string
	}{
		"settings":       {func(m *member) { m.status.ConfigHash = "b" }, "SettingsChanged"},
		"another server": {func(m *member) { m.sample.Started = 5000; m.total = 0 }, "ServerStarted"},
		"a backup":       {func(m *member) { m.sample.Copying = true }, "DataCopied"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember()
			r := m.newRecorder(t.TempDir())
			now := m.learn(t, r)
			c.change(m)
			m.rate = 2000
			now = m.live(t, r, now, 1)
			m.sample.Copying = false
			now = m.live(t, r, now, 14)
			if len(m.noted) != 0 {
				t.Fatalf("reported at once: %v", m.noted)
			}
			m.live(t, r, now, 10)
			if found := r.list(); len(found) != 1 || found[0].Cause != c.cause || found[0].CausedAt.IsZero() {
				t.Errorf("what stays: %+v", found)
			}
		})
	}
}

// Each role has what is usual in it: a replica's peace is none of a primary's.
func TestRolesAreLearnedApart(t *testing.T) {
	dir, m := t.TempDir(), newMember()
	r := m.newRecorder(dir)
	now := m.learn(t, r)
	m.status.Role, m.rate = "replica", 1
	now = m.live(t, r, now, 600)
	m.status.Role, m.rate = "primary", 100
	now = m.live(t, r, now, 60)
	if len(m.noted) != 0 {
		t.Fatalf("a change of the role is reported: %v", m.noted)
	}
	m.rate = 1000
	m.live(t, r, now, 5)
	if len(m.noted) != 1 {
		t.Errorf("what a primary does is no longer known: %v", m.noted)
	}
	for _, role := range []string{"primary", "replica"} {
		if info, err := os.Stat(filepath.Join(dir, filePrefix+role)); err != nil || info.Size() > 55<<10 {
			t.Errorf("%s: %v %v", role, info, err)
		}
	}
}

// An agent that starts anew knows what the one before learned, unless that is old, damaged or
// of other signals.
func TestRestartKeepsWhatIsUsual(t *testing.T) {
	dir, m := t.TempDir(), newMember()
	first := m.newRecorder(dir)
	now := m.learn(t, first)
	first.save()
	data, err := os.ReadFile(filepath.Join(dir, filePrefix+"primary"))
	if err != nil {
		t.Fatal(err)
	}
	again := func(at time.Time) int {
		m.noted, m.rate = nil, 100
		r := m.newRecorder(dir)
		at = m.live(t, r, at, 30)
		m.rate = 1000
		m.live(t, r, at, 5)
		return len(m.noted)
	}
	if again(now) != 1 {
		t.Error("a step is not found after a restart")
	}
	if again(now.Add(15*24*time.Hour)) != 0 {
		t.Error("what is two weeks old is judged by")
	}
	for name, text := range map[string]string{
		"empty": "", "of another version": "\x09" + string(data[1:]), "short": string(data[:5000]), "of other signals": "\x01" + strings.Repeat("x", 8) + string(data[9:]),
	} {
		if err := os.WriteFile(filepath.Join(dir, filePrefix+"primary"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if again(now) != 0 {
			t.Errorf("a file that is %s is judged by", name)
		}
	}
}

// Nothing is measured while the database does not serve, nothing is written while the volume
// needs its space, and a measurement that fails is left out.
func TestNothingIsForced(t *testing.T) {
	dir, m := t.TempDir(), newMember()
	r := m.newRecorder(dir)
	m.status.Serving = false
	m.live(t, r, monday, 10)
	if m.total != 0 {
		t.Error("a database that does not serve is measured")
	}
	r.save()
	m.status.Serving, m.failed = true, errors.New("too slow")
	m.live(t, r, monday, 10)
	m.failed, m.free = nil, 1<<20
	m.live(t, r, monday.Add(time.Hour), 10)
	r.save()
	if _, err := os.Stat(filepath.Join(dir, filePrefix+"primary")); err == nil {
		t.Error("a file was written")
	}
	m.rate = math.NaN()
	m.live(t, r, monday.Add(2*time.Hour), 10)
	if len(m.noted) != 0 {
		t.Errorf("reported: %v", m.noted)
	}
}
