package tune

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func cpuAmount(milli int64) Amount {
	if milli == 0 {
		return Amount{}
	}
	return Amount{milli, formatCPU(float64(milli))}
}

func memoryAmount(mib int64) Amount {
	if mib == 0 {
		return Amount{}
	}
	return Amount{mib * mebibyte, formatMemory(float64(mib * mebibyte))}
}

// declaredResources are in millicores and mebibytes; 0 for none.
func declaredResources(requestCPU, limitCPU, requestMemory, limitMemory int64) Spec {
	s := postgresSpec()
	s.Resources = Resources{cpuAmount(requestCPU), cpuAmount(limitCPU), memoryAmount(requestMemory), memoryAmount(limitMemory)}
	s.Memory = limitMemory * mebibyte
	return s
}

// sized is what a member measured in two weeks: CPU in millicores, memory in mebibytes.
func sized(cpu, mostCPU, memory, mostMemory, held int64) *agentapi.Sizing {
	return &agentapi.Sizing{
		Seconds: 14 * 86400, CPU: cpu, MostCPU: mostCPU, Memory: memory * mebibyte, MostMemory: mostMemory * mebibyte, MostHeld: held * mebibyte,
	}
}

func (m Member) with(change func(*agentapi.Sizing)) Member {
	change(m.Sizing)
	return m
}

func members(all ...*agentapi.Sizing) []Member {
	var list []Member
	for n, s := range all {
		list = append(list, Member{fmt.Sprintf("orders-%d", n), s})
	}
	return list
}

// smallSettings take little, so that memory may be cut.
func smallSettings() []agentapi.TuningSlot {
	settings := postgresSettings()
	settings["shared_buffers"], settings["work_mem"], settings["maintenance_work_mem"] = 64*mebibyte, mebibyte, 16*mebibyte
	return []agentapi.TuningSlot{hour(monday.Add(-time.Hour), settings, nil)}
}

func describe(list []Recommendation) string {
	var lines []string
	for _, r := range list {
		lines = append(lines, strings.TrimPrefix(r.Field, "spec.resources.")+" "+r.Current+"→"+r.Value)
	}
	return strings.Join(lines, ", ")
}

// A member that fits in what is declared has nothing recommended.
func fits() *agentapi.Sizing { return sized(800, 900, 800, 900, 1000) }

func fitting() Spec { return declaredResources(1000, 2000, 1024, 1280) }

func TestResources(t *testing.T) {
	for name, c := range map[string]struct {
		spec          Spec
		members       []Member
		lacks, spares string
	}{
		"what is declared fits":              {fitting(), members(fits(), fits()), "", ""},
		"a little more than is declared":     {fitting(), members(sized(1050, 1100, 940, 960, 1000)), "", ""},
		"the request of CPU is too small":    {fitting(), members(fits(), sized(1500, 1650, 800, 900, 1000)), "requests.cpu 1→1900m", ""},
		"no more CPU than the limit":         {fitting(), members(sized(1900, 2000, 800, 900, 1000)), "requests.cpu 1→2", ""},
		"the request of CPU is too large":    {declaredResources(4000, 0, 1024, 1280), members(fits(), sized(600, 650, 800, 900, 1000)), "", "requests.cpu 4→1050m"},
		"CPU is needed once in two weeks":    {fitting(), members(sized(200, 850, 800, 900, 1000)), "", ""},
		"whole processors of its own":        {declaredResources(4000, 4000, 1024, 1280), members(sized(100, 100, 800, 900, 1000)), "", ""},
		"nothing is declared":                {declaredResources(0, 0, 0, 0), members(fits()), "requests.memory none→1088Mi, requests.cpu none→1050m", ""},
		"only limits are declared":           {declaredResources(0, 1000, 0, 1280), members(fits()), "", ""},
		"only a request of memory":           {declaredResources(1000, 0, 512, 0), members(fits()), "requests.memory 512Mi→1088Mi", ""},
		"the limit of memory is near":        {fitting(), members(sized(800, 900, 1150, 1200, 1200)), "limits.memory 1280Mi→1664Mi", ""},
		"the limit and the request are one":  {declaredResources(1000, 2000, 1280, 1280), members(sized(800, 900, 1150, 1200, 1200)), "limits.memory 1280Mi→1664Mi, requests.memory 1280Mi→1664Mi", ""},
		"one and the same, and too large":    {declaredResources(1000, 2000, 4096, 4096), members(fits()), "", "requests.memory 4Gi→2Gi, limits.memory 4Gi→2Gi"},
		"the request of memory is small":     {declaredResources(1000, 2000, 512, 4096), members(sized(800, 900, 1150, 1200, 3000)), "requests.memory 512Mi→1408Mi", ""},
		"files are in use, page cache":       {declaredResources(1000, 2000, 4096, 4096), members(sized(800, 900, 800, 900, 3500)), "", ""},
		"memory is far too large":            {declaredResources(1000, 2000, 8192, 16384), members(fits(), fits()), "", "requests.memory 8Gi→4Gi, limits.memory 16Gi→8Gi"},
		"a limit is not cut below a request": {declaredResources(1000, 2000, 1024, 8192), members(fits()), "", "limits.memory 8Gi→4Gi"},
		"one member needs more":              {declaredResources(1000, 2000, 4096, 8192), members(fits(), sized(800, 900, 5000, 5100, 6000)), "requests.memory 4Gi→6Gi", ""},
		"a kill": {fitting(), []Member{{"orders-0", fits()}, Member{"orders-1", fits()}.with(func(s *agentapi.Sizing) {
			s.Kills, s.LastKill, s.KillMemory = 1, monday, 1280*mebibyte
		})}, "limits.memory 1280Mi→1536Mi", ""},
		"a kill of a limit that was raised": {declaredResources(1000, 2000, 1024, 1600), []Member{Member{"orders-0", fits()}.with(func(s *agentapi.Sizing) {
			s.Kills, s.LastKill, s.KillMemory = 1, monday, 1280*mebibyte
		})}, "", ""},
		"a kill on the first day": {fitting(), []Member{Member{"orders-0", fits()}.with(func(s *agentapi.Sizing) {
			s.Kills, s.LastKill, s.KillMemory, s.Seconds = 2, monday, 1280*mebibyte, 3600
		})}, "limits.memory 1280Mi→1536Mi", ""},
		"two days are not enough": {fitting(), []Member{Member{"orders-0", sized(1900, 2000, 1250, 1280, 1280)}.with(func(s *agentapi.Sizing) {
			s.Seconds = 2 * 86400
		})}, "", ""},
		"five days are not enough to cut": {declaredResources(4000, 0, 8192, 16384), []Member{{"orders-0", fits()}, Member{"orders-1", fits()}.with(func(s *agentapi.Sizing) {
			s.Seconds = 5 * 86400
		})}, "", ""},
		"a member has not reported": {fitting(), append(members(sized(1900, 2000, 1250, 1280, 1280)), Member{Name: "orders-1"}), "", ""},
		"there is no member":        {fitting(), nil, "", ""},
	} {
		lacking, spare := RecommendResources(c.spec, c.members, smallSettings(), nil, monday)
		if got := describe(lacking); got != c.lacks {
			t.Errorf("%s: more is recommended as %q, want %q", name, got, c.lacks)
		}
		if got := describe(spare); got != c.spares {
			t.Errorf("%s: less is recommended as %q, want %q", name, got, c.spares)
		}
	}
}

// The evidence names the member that needs most, and how long was measured.
func TestEvidenceOfResources(t *testing.T) {
	needy := Member{"orders-1", sized(1500, 1650, 1250, 1250, 1260)}.with(func(s *agentapi.Sizing) {
		s.Throttled, s.Stalled = 0.12, 0.305
		s.Kills, s.LastKill, s.KillMemory = 2, monday, 1280*mebibyte
	})
	lacking, _ := RecommendResources(fitting(), []Member{{"orders-0", fits()}, needy}, smallSettings(), nil, monday)
	want := map[string]string{
		limitsMemory:   "orders-1 was killed for lack of memory 2 times in eight weeks, with 1.2 GiB, last on 2026-03-02; orders-1 needed 1.2 GiB at the peak of a day, page cache not counted, in 14 days",
		requestsMemory: "orders-1 needed 1.2 GiB at the peak of a day, page cache not counted, in 14 days",
		requestsCPU:    "orders-1 used up to 1650m in 95 % of the minutes, in 14 days; limits.cpu stopped it in 12 % of its periods; it waited for a processor 30 % of the time",
	}
	if len(lacking) != len(want) {
		t.Fatalf("%+v", lacking)
	}
	for _, r := range lacking {
		if r.Evidence != want[r.Name] || !r.Restart || !r.Since.Equal(monday) {
			t.Errorf("%+v", r)
		}
	}
	_, spare := RecommendResources(declaredResources(4000, 0, 8192, 16384), members(fits()), smallSettings(), nil, monday)
	if len(spare) != 3 || spare[1].Name != limitsMemory || spare[1].Evidence != "no member held more than 1000 MiB, files in use counted, in 14 days" {
		t.Errorf("%+v", spare)
	}
}

// Nothing is recommended that the database's settings do not fit in, and nothing is cut while
// those are not measured.
func TestSettingsAreALeast(t *testing.T) {
	spec := declaredResources(1000, 2000, 8192, 16384)
	if _, spare := RecommendResources(spec, members(fits()), nil, nil, monday); len(spare) > 0 {
		t.Errorf("without the settings: %s", describe(spare))
	}
	settings := postgresSettings()
	settings["shared_buffers"], settings["work_mem"] = 5*gibibyte, 32*mebibyte
	slots := []agentapi.TuningSlot{hour(monday.Add(-time.Hour), settings, nil)}
	// 5 GiB, 20 connections with 32 MiB, and 3 workers with 64 MiB: 5952 MiB, which are 80 % of
	// 7440 MiB.
	_, spare := RecommendResources(spec, members(fits()), slots, nil, monday)
	if got := describe(spare); got != "requests.memory 8Gi→6Gi, limits.memory 16Gi→8Gi" {
		t.Error(got)
	}
	for engine, want := range map[Engine]string{MySQL: "requests.memory 512Mi→1Gi", Etcd: "requests.memory 512Mi→1Gi"} {
		s := declaredResources(1000, 0, 512, 0)
		s.Engine = engine
		if lacking, _ := RecommendResources(s, members(sized(800, 900, 850, 850, 900)), nil, nil, monday); describe(lacking) != want {
			t.Errorf("%s: %q, want %q", engine, describe(lacking), want)
		}
	}
}

// What is excluded is not recommended, and nothing is in mode Off.
func TestResourcesAreExcluded(t *testing.T) {
	spec, needy := fitting(), members(sized(1500, 1650, 1250, 1250, 1260))
	for exclude, want := range map[string]string{
		limitsMemory:   "requests.memory 1Gi→1280Mi, requests.cpu 1→1900m",
		requestsMemory: "limits.memory 1280Mi→1664Mi, requests.cpu 1→1900m",
		requestsCPU:    "limits.memory 1280Mi→1664Mi, requests.memory 1Gi→1536Mi",
	} {
		spec.Exclude = []string{exclude}
		lacking, _ := RecommendResources(spec, needy, smallSettings(), nil, monday)
		if got := describe(lacking); got != want {
			t.Errorf("without %s: %q, want %q", exclude, got, want)
		}
		again, _ := RecommendResources(spec, members(nil), nil, lacking, monday.Add(time.Hour))
		if !slices.Equal(again, lacking) {
			t.Errorf("without %s: %q, then %q", exclude, want, describe(again))
		}
	}
	spec.Exclude, spec.Off = nil, true
	if lacking, spare := RecommendResources(spec, needy, smallSettings(), nil, monday); len(lacking)+len(spare) > 0 {
		t.Errorf("in mode Off: %+v %+v", lacking, spare)
	}
}

// What was recommended stays in its words while it holds, changes once a day at most, and goes
// when the declared value changes.
func TestResourcesAreSteady(t *testing.T) {
	spec := fitting()
	first, _ := RecommendResources(spec, members(sized(1500, 1650, 800, 900, 1000)), smallSettings(), nil, monday)
	if describe(first) != "requests.cpu 1→1900m" {
		t.Fatal(describe(first))
	}
	for name, c := range map[string]struct {
		after   time.Duration
		members []Member
		want    string
	}{
		"the same load":                    {48 * time.Hour, members(sized(1500, 1650, 800, 900, 1000)), ""},
		"a little more":                    {48 * time.Hour, members(sized(1600, 1700, 800, 900, 1000)), ""},
		"it was in the night":              {48 * time.Hour, members(sized(200, 1650, 800, 900, 1000)), ""},
		"a little less":                    {48 * time.Hour, members(sized(1000, 1100, 800, 900, 1000)), ""},
		"the operator was started anew":    {48 * time.Hour, members(nil), ""},
		"the load is gone, within a day":   {20 * time.Hour, members(sized(300, 400, 800, 900, 1000)), ""},
		"the load is gone":                 {48 * time.Hour, members(sized(800, 850, 800, 900, 1000)), "nothing"},
		"far less, after two weeks":        {400 * time.Hour, members(sized(300, 310, 800, 900, 1000)), "400m"},
		"far more, within a day":           {20 * time.Hour, members(sized(1950, 2000, 800, 900, 1000)), ""},
		"a clock that was set back":        {-time.Hour, members(sized(300, 400, 800, 900, 1000)), ""},
		"another member has not reported":  {48 * time.Hour, members(nil, sized(1500, 1650, 800, 900, 1000)), ""},
		"another member needs as much now": {48 * time.Hour, members(fits(), sized(1500, 1650, 800, 900, 1000)), ""},
	} {
		lacking, spare := RecommendResources(spec, c.members, smallSettings(), first, monday.Add(c.after))
		got := append(lacking, spare...)
		switch {
		case c.want == "" && !slices.Equal(got, first):
			t.Errorf("%s: %+v, then %+v", name, first, got)
		case c.want == "nothing" && len(got) > 0, c.want != "" && c.want != "nothing" && (len(got) != 1 || got[0].Value != c.want):
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	followed := spec
	followed.Resources.RequestCPU = Amount{1900, "1900m"}
	if lacking, spare := RecommendResources(followed, members(nil), nil, first, monday.Add(time.Minute)); len(lacking)+len(spare) > 0 {
		t.Errorf("after it was followed: %+v %+v", lacking, spare)
	}
	if lacking, spare := RecommendResources(followed, members(sized(1500, 1650, 800, 900, 1000)), smallSettings(), first, monday.Add(time.Hour)); len(lacking)+len(spare) > 0 {
		t.Errorf("after it was followed, and measured: %+v %+v", lacking, spare)
	}
}

// A kill is not waited with for a day.
func TestKillIsUrgent(t *testing.T) {
	spec := fitting()
	first, _ := RecommendResources(spec, members(sized(800, 900, 1150, 1150, 1200)), smallSettings(), nil, monday)
	if !strings.HasPrefix(describe(first), "limits.memory 1280Mi→1536Mi") {
		t.Fatal(describe(first))
	}
	killed := Member{"orders-0", sized(800, 900, 1150, 1150, 1200)}.with(func(s *agentapi.Sizing) {
		s.Kills, s.LastKill, s.KillMemory = 1, monday.Add(time.Hour), 1408*mebibyte
	})
	again, _ := RecommendResources(spec, []Member{killed}, smallSettings(), first, monday.Add(2*time.Hour))
	if !strings.HasPrefix(describe(again), "limits.memory 1280Mi→1792Mi") || !strings.Contains(again[0].Evidence, "killed") {
		t.Errorf("%+v", again)
	}
	once, _ := RecommendResources(spec, []Member{killed}, smallSettings(), again, monday.Add(3*time.Hour))
	if !slices.Equal(once, again) {
		t.Errorf("%+v, then %+v", again, once)
	}
}

// Settings that follow the memory are named, but those that are declared.
func TestComputedSettings(t *testing.T) {
	spec := fitting()
	spec.Declared = map[string]string{"shared_buffers": "1GB"}
	if got := ListComputed(spec, requestsMemory); !slices.Equal(got, []string{"effective_cache_size", "maintenance_work_mem", "work_mem"}) {
		t.Error(got)
	}
	for _, name := range []string{limitsMemory, requestsCPU, "work_mem"} {
		if got := ListComputed(spec, name); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	spec.Resources.RequestMemory = Amount{}
	if got := ListComputed(spec, limitsMemory); len(got) != 3 {
		t.Errorf("a limit that is the request, too: %v", got)
	}
	spec.Engine = Etcd
	if got := ListComputed(spec, limitsMemory); got != nil {
		t.Errorf("etcd: %v", got)
	}
}

// Whatever is measured and declared: a value can be read as it is written, none is below what
// the engine takes, a request is not above its limit, whichever is committed first, and memory
// is cut to half at most. Asked again, the same is recommended.
func TestInvariantsOfResources(t *testing.T) {
	given := 0
	for seed := range uint64(4000) {
		r := rand.New(rand.NewPCG(seed, 11))
		spec := randomResources(r)
		var all []Member
		for n := range 1 + r.IntN(3) {
			all = append(all, Member{fmt.Sprintf("orders-%d", n), randomSizing(r)})
		}
		slots := randomSlots(r, randomSettings(r, spec.Engine), monday)
		lacking, spare := RecommendResources(spec, all, slots, nil, monday)
		list := slices.Concat(lacking, spare)
		given += len(list)
		for n, one := range list {
			value, is := parseAmount(one.Value)
			now := float64(spec.Resources.findAmount(one.Name).Value)
			if !is || value == now || len(one.Evidence) > 256 || one.Evidence == "" || one.Current == "" {
				t.Fatalf("seed %d: %+v", seed, one)
			}
			if one.Name != requestsCPU && (value < min(leastMemory[spec.Engine], now) || value < now/mostCut-1) {
				t.Fatalf("seed %d: %+v of %v", seed, one, now)
			}
			if !spec.Resources.with(list[:n+1]...).isValid() || !spec.Resources.with(list...).isValid() {
				t.Fatalf("seed %d: %+v, with %+v", seed, list[:n+1], spec.Resources)
			}
		}
		nextLacking, nextSpare := RecommendResources(spec, all, slots, list, monday.Add(time.Minute))
		if !slices.Equal(nextLacking, lacking) || !slices.Equal(nextSpare, spare) {
			t.Fatalf("seed %d: %+v, then %+v %+v", seed, list, nextLacking, nextSpare)
		}
	}
	t.Logf("%d recommendations", given)
	if given < 1000 {
		t.Error("hardly anything is recommended: the test shows nothing")
	}
}

func randomResources(r *rand.Rand) Spec {
	requestCPU, requestMemory := int64(r.IntN(40))*100, int64(r.IntN(64))*256
	limitCPU, limitMemory := requestCPU+int64(r.IntN(3))*500, requestMemory+int64(r.IntN(3))*1024
	if r.IntN(3) == 0 {
		limitCPU, limitMemory = 0, 0
	}
	spec := declaredResources(requestCPU, limitCPU, requestMemory, limitMemory)
	spec.Engine = []Engine{PostgreSQL, MySQL, Etcd}[r.IntN(3)]
	return spec
}

func randomSizing(r *rand.Rand) *agentapi.Sizing {
	cpu, memory := int64(1)<<r.IntN(14), int64(1)<<r.IntN(15)
	s := sized(cpu, cpu+int64(r.IntN(1000)), memory, memory+int64(r.IntN(2000)), memory+int64(2000+r.IntN(4000)))
	s.Seconds = int64(r.IntN(15) * 86400)
	s.Throttled, s.Stalled = r.Float64(), r.Float64()
	if r.IntN(4) == 0 {
		s.Kills, s.LastKill, s.KillMemory = 1+r.IntN(8), monday.Add(-time.Hour), int64(r.IntN(64))*256*mebibyte
	}
	return s
}

// with are the resources after values were committed.
func (r Resources) with(list ...Recommendation) Resources {
	for _, one := range list {
		value, _ := parseAmount(one.Value)
		amount := Amount{int64(value), one.Value}
		switch one.Name {
		case limitsMemory:
			r.LimitMemory = amount
		case requestsMemory:
			r.RequestMemory = amount
		case requestsCPU:
			r.RequestCPU = amount
		}
	}
	return r
}

func (r Resources) isValid() bool {
	return (r.LimitMemory.Value == 0 || r.RequestMemory.Value <= r.LimitMemory.Value) && (r.LimitCPU.Value == 0 || r.RequestCPU.Value <= r.LimitCPU.Value)
}
