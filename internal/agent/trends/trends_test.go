package trends

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

var begin = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

const gib = 1 << 30

// member is what a Recorder sees of its member, with a volume of 1 TiB.
type member struct {
	used   int64
	serves bool
	noted  []loginsight.Event
}

func newRecorder(dir string, m *member) *Recorder {
	return NewRecorder(Options{
		Log: slog.New(slog.DiscardHandler), Volume: m.volume(dir),
		Note: func(e loginsight.Event) { m.noted = append(m.noted, e) },
	})
}

func (m *member) volume(dir string) Volume {
	return Volume{
		Dir:    dir,
		Space:  func() diskspace.Space { return diskspace.Space{Total: 1 << 40, Free: 1<<40 - m.used} },
		Serves: func() bool { return m.serves },
	}
}

func (m *member) live(r *Recorder, from time.Time, minutes int, perMinute int64) {
	for i := range minutes {
		m.used += perMinute
		r.Measure(from.Add(time.Duration(i) * time.Minute))
	}
}

func (m *member) classes() (names []string) {
	for _, e := range m.noted {
		names = append(names, e.Class.Name)
	}
	return names
}

// A steady volume is never reported. One that fills is, once in twelve hours, and at once
// where it becomes more urgent, in words, in the metric and in the answer.
func TestFillingVolumeIsReported(t *testing.T) {
	m := &member{used: 200 * gib, serves: true}
	r := newRecorder(t.TempDir(), m)
	m.live(r, begin, 3*1440, 0)
	if len(m.noted) != 0 {
		t.Fatalf("a steady volume is reported: %v", m.classes())
	}
	if metrics := scrape(r); strings.Contains(metrics, "holdfast_volume_full_forecast_seconds") || !strings.Contains(metrics, "other_metric 1") {
		t.Errorf("metrics of a steady volume: %s", metrics)
	}
	at := begin.Add(3 * 24 * time.Hour)
	m.live(r, at, 1440, gib/8) // full in 4.6 days
	if got := strings.Join(m.classes(), " "); got != loginsight.VolumeFullInFourDays {
		t.Fatalf("after a day: %q", got)
	}
	m.live(r, at.Add(24*time.Hour), 120, 3*gib) // full in three hours
	if got := strings.Join(m.classes(), " "); got != loginsight.VolumeFullInFourDays+" "+loginsight.VolumeFullInADay {
		t.Fatalf("after two hours more: %q", got)
	}
	var report agentapi.Insights
	r.Report(&report)
	if v := report.Volume; v == nil || !v.Fills || v.Trend || v.Seconds <= 0 || v.Seconds > 3*3600 || v.ShownSeconds == 0 {
		t.Errorf("%+v", report.Volume)
	}
	if metrics := scrape(r); !strings.Contains(metrics, "\nholdfast_volume_full_forecast_seconds ") {
		t.Errorf("metrics: %s", metrics)
	}
}

func scrape(r *Recorder) string {
	others := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# TYPE other_metric gauge\nother_metric 1\n")
	})
	answer := httptest.NewRecorder()
	metricfamily.AppendTo(others, r).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// A scrape that is refused stays refused.
func TestRefusedScrape(t *testing.T) {
	m := &member{}
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) })
	answer := httptest.NewRecorder()
	metricfamily.AppendTo(refuse, newRecorder(t.TempDir(), m)).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != "busy\n" {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// A member that copies its data fills its volume on purpose, and what it has then is no
// growth.
func TestCopyOfDataIsNotReported(t *testing.T) {
	m := &member{}
	r := newRecorder(t.TempDir(), m)
	m.live(r, begin, 100, 8*gib)
	m.serves = true
	m.live(r, begin.Add(100*time.Minute), 3*1440, 0)
	if f := r.Forecast(); len(m.noted) != 0 || !f.Known || f.Fills {
		t.Errorf("%v %+v", m.classes(), f)
	}
}

// An agent that is started anew forecasts as the one before.
func TestRestartKeepsTheHistory(t *testing.T) {
	dir := t.TempDir()
	m := &member{used: 700 * gib, serves: true}
	first := newRecorder(dir, m)
	m.live(first, begin, 5*1440+1, gib/40)
	first.save()
	if info, err := os.Stat(filepath.Join(dir, FileName)); err != nil || info.Size() > 7<<10 {
		t.Fatalf("%v %v", info, err)
	}
	again := newRecorder(dir, m)
	if err := again.load(); err != nil {
		t.Fatal(err)
	}
	m.live(first, begin.Add(120*time.Hour+time.Minute), 10, gib/40)
	m.used -= 10 * gib / 40
	m.live(again, begin.Add(120*time.Hour+time.Minute), 10, gib/40)
	if f := again.Forecast(); !f.Fills || !f.Trend || f != first.Forecast() {
		t.Errorf("%+v, and before %+v", f, first.Forecast())
	}
}

// A file that is damaged, or of another version, is not read, and none is written while the
// database does not serve or the volume is nearly full.
func TestFileOfTrends(t *testing.T) {
	dir, m := t.TempDir(), &member{}
	r := newRecorder(dir, m)
	r.save()
	m.serves, m.used = true, 1<<40-1<<20
	r.save()
	if _, err := os.Stat(filepath.Join(dir, FileName)); err == nil {
		t.Error("a file was written")
	}
	for _, text := range []string{"", "x", "\x01", "\x01\x02\x00\x00\x00short", "\x01" + strings.Repeat("\xff", 100)} {
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.load(); err == nil {
			t.Errorf("%.10q was read", text)
		}
	}
}
