package trends

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/sizing"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// container is what the kernel says of one.
type container struct {
	cpu   time.Duration
	anon  int64
	limit string
	kills int
	gone  bool
}

// files are those of its control group now.
func (c *container) files() fstest.MapFS {
	if c.gone {
		return fstest.MapFS{}
	}
	file := func(format string, values ...any) *fstest.MapFile {
		return &fstest.MapFile{Data: fmt.Appendf(nil, format, values...)}
	}
	return fstest.MapFS{
		"memory.current":  file("1\n"),
		"memory.max":      file("%s\n", c.limit),
		"memory.stat":     file("anon %d\nshmem %d\nactive_file %d\nworkingset_refault_file 0\n", c.anon, gib/4, 3*gib),
		"memory.events":   file("oom_kill %d\n", c.kills),
		"memory.pressure": file("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
		"cpu.stat":        file("usage_usec %d\nnr_periods 0\nnr_throttled 0\n", c.cpu.Microseconds()),
		"cpu.pressure":    file("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
	}
}

// usageWorld is a member with a container.
type usageWorld struct {
	*UsageRecorder
	c         *container
	m         *member
	published []time.Time
	// urgent are those of them that waited for nothing.
	urgent  int
	refuses bool
}

func newUsageWorld(dir string) *usageWorld {
	w := &usageWorld{c: &container{anon: gib, limit: "4294967296"}, m: &member{serves: true}}
	w.restart(dir)
	return w
}

// restart begins with another agent.
func (w *usageWorld) restart(dir string) {
	w.UsageRecorder = NewUsageRecorder(UsageOptions{
		Log: slog.New(slog.DiscardHandler), Volume: w.m.volume(dir),
		Publish: func(now time.Time, urgent bool) bool {
			if !w.refuses {
				w.published = append(w.published, now)
			}
			if urgent && !w.refuses {
				w.urgent++
			}
			return !w.refuses
		},
	})
}

// live passes minutes, in each of which so much of a processor is used.
func (w *usageWorld) live(from time.Time, minutes int, cores float64) time.Time {
	for range minutes {
		w.c.cpu += time.Duration(cores * float64(time.Minute))
		w.o.Container = w.c.files()
		w.Measure(from)
		w.publish(from)
		from = from.Add(time.Minute)
	}
	return from
}

func (w *usageWorld) sized(at time.Time) agentapi.Sizing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report(at)
}

// What the kernel says becomes a report, with two digits of each number: of the time in which
// the database served, and with kills of any.
func TestUsageIsMeasured(t *testing.T) {
	w := newUsageWorld(t.TempDir())
	at := w.live(begin, 1441, 1.234)
	w.m.serves = false
	w.c.anon = 3 * gib
	at = w.live(at, 100, 4)
	want := agentapi.Sizing{Seconds: 86400, CPU: 1300, MostCPU: 1300, Memory: 1400000000, MostMemory: 1400000000, MostHeld: 4600000000}
	if got := w.sized(at); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.c.kills++
	at = w.live(at, 1, 0)
	w.RecordKill(at.Add(time.Minute).Truncate(time.Second))
	w.RecordKill(at.Add(time.Minute).Truncate(time.Second))
	if got := w.sized(at.Add(time.Hour)); got.Kills != 2 || got.KillMemory != 4*gib || !got.LastKill.Equal(at.Add(time.Minute)) {
		t.Errorf("%+v", got)
	}
	w.c.limit, w.c.kills = "max", w.c.kills+1
	at = w.live(at, 10, 0)
	if got := w.sized(at); got.Kills != 2 {
		t.Errorf("a kill of a container without a limit counts: %+v", got)
	}
}

// The operator is asked for attention at the start, once an hour where something differs, and
// at once after a kill. A steady member asks twice a day, with how long was measured.
func TestUsageIsPublished(t *testing.T) {
	w := newUsageWorld(t.TempDir())
	w.refuses = true
	at := w.live(begin, 5, 0.5)
	w.refuses = false
	at = w.live(at, 3*1440, 0.5)
	if w.urgent != 1 {
		t.Errorf("%d of the first reports are urgent", w.urgent)
	}
	w.published = nil
	at = w.live(at, 4*1440, 0.5)
	if n := len(w.published); n != 8 {
		t.Errorf("a steady member publishes %d times in four days", n)
	}
	w.published = nil
	at = w.live(at, 360, 3)
	if n := len(w.published); n == 0 || n > 6 {
		t.Errorf("a load that grows is published %d times in six hours", n)
	}
	w.published = nil
	w.c.kills++
	if w.live(at, 2, 3); len(w.published) != 1 || w.urgent != 2 {
		t.Errorf("a kill is published %d times, and %d reports were urgent", len(w.published), w.urgent)
	}
	if got := w.sized(at); got.Kills != 1 {
		t.Errorf("%+v", got)
	}
}

// A member that may not see its control group reports nothing, and nothing is published.
func TestUnreadableContainer(t *testing.T) {
	w := newUsageWorld(t.TempDir())
	w.c.gone = true
	w.live(begin, 100, 1)
	var into agentapi.Tuning
	if w.Report(&into); into.Sizing != nil || len(w.published) > 0 {
		t.Errorf("%+v, published at %v", into.Sizing, w.published)
	}
	w.RecordKill(begin)
	w.c.gone = false
	w.live(begin.Add(2*time.Hour), 2, 1)
	if w.Report(&into); into.Sizing == nil || len(w.published) != 1 {
		t.Errorf("%+v, published at %v", into.Sizing, w.published)
	}
}

// An agent that is started anew goes on where the one before saved, in another container.
func TestUsageSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	w := newUsageWorld(dir)
	at := w.live(begin, 5*1440+100, 0.7)
	w.c.kills++
	at = w.live(at, 1, 0.7)
	w.save()
	before := w.sized(at)
	if info, err := os.Stat(filepath.Join(dir, UsageFileName)); err != nil || info.Size() > 2<<10 {
		t.Fatalf("%v %v", info, err)
	}
	w.restart(dir)
	w.c.cpu, w.c.kills = 0, 0
	w.o.Container = w.c.files()
	w.RecordKill(at.Add(30 * time.Second)) // of the pod, before the file is read
	if err := w.load(); err != nil {
		t.Fatal(err)
	}
	after := w.sized(at)
	before.Kills, before.LastKill = 2, at.Add(30*time.Second)
	if after != before {
		t.Errorf("%+v, and before %+v", after, before)
	}
	w.live(at, 3, 0.7)
	if again := w.sized(at); again.Seconds != before.Seconds+120 {
		t.Errorf("%+v, and before %+v", again, before)
	}
	for _, text := range []string{"", "x", "\x01", "\x01\x02\x00\x00\x00", "\x01\x01\x00\x00\x00short", "\x01" + strings.Repeat("\xff", 3000), "\x01" + strings.Repeat("\x00", 12)} {
		if err := os.WriteFile(filepath.Join(dir, UsageFileName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.load(); err == nil {
			t.Errorf("%.10q was read", text)
		}
	}
}

// The metrics say what is used now, and what is needed.
func TestUsageMetrics(t *testing.T) {
	w := newUsageWorld(t.TempDir())
	w.live(begin, 1441, 0.5)
	others := http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write([]byte("other_metric 1\n")) })
	answer := httptest.NewRecorder()
	metricfamily.AppendTo(others, w).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, line := range []string{"other_metric 1", "holdfast_member_cpu_used_cores 0.5", "holdfast_member_memory_used_bytes 1.34217728e+09", "holdfast_member_cpu_needed_cores 0.5", "holdfast_member_memory_needed_bytes 1.34217728e+09"} {
		if !strings.Contains("\n"+answer.Body.String(), "\n"+line) {
			t.Errorf("%q is missing in\n%s", line, answer.Body)
		}
	}
}

// lived is a member whose person commits what was recommended for a day and a half.
type lived struct {
	t       *testing.T
	w       *usageWorld
	spec    tune.Spec
	given   []tune.Recommendation
	changed map[string][]time.Time
	kills   int
}

// pass lives for hours with a load, which is used for each minute.
func (l *lived) pass(from time.Time, hours int, load func(at time.Time) sizing.Usage) {
	for m := range hours * 60 {
		at := from.Add(time.Duration(m) * time.Minute)
		u := load(at)
		u.Held = u.Memory + gib/8
		if limit := l.spec.Resources.LimitMemory.Value; limit > 0 && u.Memory > limit {
			u.Memory = limit
			if l.w.history.AddKill(at, limit) {
				l.kills++
			}
		}
		l.w.history.Add(at, u)
		if m%60 == 59 {
			l.recommend(at)
		}
	}
}

func (l *lived) recommend(at time.Time) {
	report := l.w.sized(at)
	settings := map[string]float64{"shared_buffers": 64 << 20, "work_mem": 1 << 20, "maintenance_work_mem": 16 << 20}
	slots := []agentapi.TuningSlot{{Start: at.Add(-time.Hour), End: at, Seconds: 3600, Settings: settings, Sums: map[string]float64{}, Peaks: map[string]float64{}}}
	lacking, spare := tune.RecommendResources(l.spec, []tune.Member{{Name: "orders-0", Sizing: &report}}, slots, l.given, at)
	next := append(lacking, spare...)
	for _, name := range tune.ResourceNames() {
		was, is := find(l.given, name), find(next, name)
		followed := is == (tune.Recommendation{}) && l.declared(name).Text == was.Value
		if was != is && !followed {
			l.changed[name] = append(l.changed[name], at)
		}
	}
	l.given = next
	for _, r := range next {
		if at.Sub(r.Since) >= 36*time.Hour {
			l.commit(r)
		}
	}
}

func find(list []tune.Recommendation, name string) tune.Recommendation {
	if i := slices.IndexFunc(list, func(r tune.Recommendation) bool { return r.Name == name }); i >= 0 {
		return list[i]
	}
	return tune.Recommendation{}
}

func (l *lived) declared(name string) *tune.Amount {
	switch name {
	case "limits.memory":
		return &l.spec.Resources.LimitMemory
	case "requests.memory":
		return &l.spec.Resources.RequestMemory
	}
	return &l.spec.Resources.RequestCPU
}

func (l *lived) commit(r tune.Recommendation) {
	amount := tune.Amount{Text: r.Value}
	var number float64
	var unit string
	if _, err := fmt.Sscanf(r.Value, "%g%s", &number, &unit); err != nil && unit != "" {
		l.t.Fatal(err)
	}
	factor, known := map[string]float64{"": 1000, "m": 1, "Mi": 1 << 20, "Gi": gib}[unit]
	if !known {
		l.t.Fatalf("%s is no quantity that this test knows", r.Value)
	}
	amount.Value = int64(number * factor)
	*l.declared(r.Name) = amount
}

// changesInADay is the largest number of changes of one field in 24 hours.
func (l *lived) changesInADay() int {
	most := 0
	for _, times := range l.changed {
		for i, first := range times {
			n := 0
			for _, at := range times[i:] {
				if at.Sub(first) < 24*time.Hour {
					n++
				}
			}
			most = max(most, n)
		}
	}
	return most
}

// steadyLoad goes on for ever in the same way. The 95 % quantile of its minutes is between least
// and most, in millicores, and its largest memory between memoryLow and limit.
type steadyLoad struct {
	use              func(r *rand.Rand, at time.Time) sizing.Usage
	least, most      float64
	memoryLow, limit float64 // in GiB
}

func steadyLoads() map[string]steadyLoad {
	return map[string]steadyLoad{
		"days and nights": {func(r *rand.Rand, at time.Time) sizing.Usage {
			wave := 1 - math.Cos(2*math.Pi*float64(at.Hour()*60+at.Minute())/1440)
			return sizing.Usage{CPU: 300 + 500*wave + 30*r.NormFloat64(), Memory: int64(gib * (1.5 + 0.5*wave + 0.05*r.Float64()))}
		}, 1280, 1300, 2.5, 2.55},
		"working hours, and not on weekends": {func(r *rand.Rand, at time.Time) sizing.Usage {
			u := sizing.Usage{CPU: 150 + 10*r.NormFloat64(), Memory: gib}
			if h := at.Hour(); h >= 9 && h < 17 && at.Weekday() != time.Saturday && at.Weekday() != time.Sunday {
				u = sizing.Usage{CPU: 2000 + 50*r.NormFloat64(), Memory: int64(gib * (2.4 + 0.1*r.Float64()))}
			}
			return u
		}, 2000, 2100, 2.5, 2.5},
		"an hour each night": {func(r *rand.Rand, at time.Time) sizing.Usage {
			u := sizing.Usage{CPU: 400 + 20*r.NormFloat64(), Memory: gib}
			if at.Hour() == 2 {
				u = sizing.Usage{CPU: 1800, Memory: 3 * gib}
			}
			return u
		}, 1800, 1800, 3, 3},
		"bursts at random": {func(r *rand.Rand, _ time.Time) sizing.Usage {
			u := sizing.Usage{CPU: 250 + 20*r.NormFloat64(), Memory: int64(gib * (1 + 0.1*r.Float64()))}
			if r.IntN(10) == 0 {
				u.CPU, u.Memory = 2500+100*r.NormFloat64(), int64(gib*(1.8+0.2*r.Float64()))
			}
			return u
		}, 2480, 2600, 2, 2},
	}
}

// Eight weeks of each load, with requests that are far too small beside a limit that hardly
// suffices, and with far too much of all, while a person commits
// what is recommended. The request of CPU comes to be up to a third more than what suffices in
// 95 % of the minutes. The limit of memory is 1.1 to 1.8 times the largest peak, and the request
// at most 12 % below that peak. No field changes twice in a day, and from the fifth week on none
// does.
func TestRecommendationsOfSteadyLoads(t *testing.T) {
	large := tune.Resources{RequestCPU: tune.Amount{Value: 16000, Text: "16"}, RequestMemory: tune.Amount{Value: 16 * gib, Text: "16Gi"}, LimitMemory: tune.Amount{Value: 16 * gib, Text: "16Gi"}}
	for name, load := range steadyLoads() {
		limit := int64(load.limit*1.05*1024) + 1
		small := tune.Resources{RequestCPU: tune.Amount{Value: 200, Text: "200m"}, RequestMemory: tune.Amount{Value: gib, Text: "1Gi"}, LimitMemory: tune.Amount{Value: limit << 20, Text: fmt.Sprintf("%dMi", limit)}}
		for which, declared := range map[string]tune.Resources{"small": small, "large": large} {
			r := rand.New(rand.NewPCG(3, 9))
			l := &lived{t: t, w: newUsageWorld(t.TempDir()), spec: tune.Spec{Engine: tune.PostgreSQL, Volume: 100 * gib, Resources: declared}, changed: map[string][]time.Time{}}
			use := func(at time.Time) sizing.Usage { return load.use(r, at) }
			l.pass(begin, 4*7*24, use)
			if n := l.changesInADay(); n > 1 {
				t.Errorf("%s, %s: %d changes of a field in a day: %v", name, which, n, l.changed)
			}
			l.changed = map[string][]time.Time{}
			l.pass(begin.Add(4*7*24*time.Hour), 4*7*24, use)
			if len(l.changed) > 0 || len(l.given) > 0 || l.kills > 0 {
				t.Errorf("%s, %s: from the fifth week on: %v, %+v, %d kills", name, which, l.changed, l.given, l.kills)
			}
			cpu := float64(l.spec.Resources.RequestCPU.Value)
			if cpu < load.least || cpu > 4./3*load.most {
				t.Errorf("%s, %s: requests.cpu is %s, where %.0fm to %.0fm are needed", name, which, l.spec.Resources.RequestCPU, load.least, load.most)
			}
			request, limit := float64(l.spec.Resources.RequestMemory.Value)/gib, float64(l.spec.Resources.LimitMemory.Value)/gib
			if request < 0.88*load.memoryLow || request > 1.8*load.limit || limit < 1.1*load.memoryLow || limit > 1.8*load.limit {
				t.Errorf("%s, %s: memory is %s and %s, where %.2f GiB are needed", name, which, l.spec.Resources.RequestMemory, l.spec.Resources.LimitMemory, load.memoryLow)
			}
			t.Logf("%s, %s: %+v", name, which, l.spec.Resources)
		}
	}
}

// A load that grows by 3 % a day is followed: after the first week no more than three minutes
// in a hundred need more than the request, and at most one change a day is asked for.
func TestRecommendationsOfAGrowingLoad(t *testing.T) {
	l := &lived{t: t, w: newUsageWorld(t.TempDir()), changed: map[string][]time.Time{}, spec: tune.Spec{
		Engine: tune.PostgreSQL, Volume: 100 * gib,
		Resources: tune.Resources{RequestCPU: tune.Amount{Value: 500, Text: "500m"}, RequestMemory: tune.Amount{Value: gib, Text: "1Gi"}, LimitMemory: tune.Amount{Value: 2 * gib, Text: "2Gi"}},
	}}
	r := rand.New(rand.NewPCG(3, 9))
	above, minutes := 0, 0
	l.pass(begin, 40*24, func(at time.Time) sizing.Usage {
		grown := math.Pow(1.03, at.Sub(begin).Hours()/24)
		u := sizing.Usage{CPU: grown * (400 + 20*r.NormFloat64()), Memory: int64(grown * gib)}
		if at.Sub(begin) > 7*24*time.Hour {
			minutes++
			if u.CPU > 1.2*float64(l.spec.Resources.RequestCPU.Value) {
				above++
			}
		}
		return u
	})
	if n := l.changesInADay(); n > 1 || above > minutes*3/100 || l.kills > 0 {
		t.Errorf("%d changes in a day, %d of %d minutes far above the request, %d kills: %v", n, above, minutes, l.kills, l.changed)
	}
	t.Logf("%+v after 40 days", l.spec.Resources)
}

// A job that does not fit in the limit is killed, and then fits: after two commits at most it
// is killed no more, and the limit stays although it runs once a week only.
func TestRecommendationAfterKills(t *testing.T) {
	l := &lived{t: t, w: newUsageWorld(t.TempDir()), changed: map[string][]time.Time{}, spec: tune.Spec{
		Engine: tune.PostgreSQL, Volume: 100 * gib,
		Resources: tune.Resources{RequestCPU: tune.Amount{Value: 500, Text: "500m"}, RequestMemory: tune.Amount{Value: gib, Text: "1Gi"}, LimitMemory: tune.Amount{Value: 2 * gib, Text: "2Gi"}},
	}}
	weekly := func(at time.Time) sizing.Usage {
		u := sizing.Usage{CPU: 300, Memory: gib}
		if at.Weekday() == time.Sunday && at.Hour() == 3 && at.Minute() < 10 {
			u.Memory = gib * 7 / 2
		}
		return u
	}
	l.pass(begin, 3*7*24, weekly)
	if l.kills == 0 {
		t.Fatal("nothing was killed: the test shows nothing")
	}
	killed := l.kills
	l.changed = map[string][]time.Time{}
	l.pass(begin.Add(3*7*24*time.Hour), 5*7*24, weekly)
	if l.kills != killed || l.changed["limits.memory"] != nil || l.spec.Resources.LimitMemory.Value < gib*7/2 {
		t.Errorf("%d kills more, the limit is %s, changed at %v", l.kills-killed, l.spec.Resources.LimitMemory, l.changed)
	}
}
