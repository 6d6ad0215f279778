package anomaly_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// member generates what is measured of a made-up member. It knows no rule of the detector:
// a signal is a load with a shape over the day and the week, that grows, with noise that has
// heavy tails and that lasts, jobs and bursts.
type member struct {
	rand    *rand.Rand
	start   time.Time
	signals []source
	// peak is the hour of the highest load, and depth how far the nights are below it.
	peak, depth float64
	// weekends have so much of the load of a weekday, and holds says how much each day has.
	saturday, sunday, growth float64
	day                      int
	today, wander            float64
	jobs                     []job
	// burst is a load of one or two minutes more.
	burstEnds time.Time
	burst     float64
	// away is when the member is measured again.
	away time.Time
	// step of one signal, until it ends.
	stepped  int
	factor   float64
	stepEnds time.Time
}

// source is one signal of a member.
type source struct {
	counter bool
	// scale of the load, or of what happens now and then; follows is how much of the load's
	// shape it has, and noise the deviation of each minute.
	scale, follows, noise float64
	// seldom is the chance of a minute that something happens at all; 1 for always.
	seldom float64
	// whole numbers only, as of sessions.
	whole bool
	// wander is noise that lasts, total what a counter has come to, and now the present rate.
	wander, total, now float64
}

// job runs at the same time each day, or each hour, a little sooner or later.
type job struct {
	at, every, length time.Duration
	factor            float64
	hits              []int
	begins            time.Time
}

// scales are what a busy member does, by signal.
var scales = map[string]float64{
	"commits": 400, "statements": 2500, "rollbacks": 3, "rows_read": 400_000, "rows_written": 900, "blocks_read": 3000, "pages_read": 1500,
	"temporary_bytes": 4e6, "temporary_tables": 8, "log_bytes": 3e6, "sessions": 120, "active_sessions": 12,
	"puts": 120, "deletes": 20, "ranges": 900, "received_bytes": 600_000, "sent_bytes": 5e6, "watchers": 400, "sync_time": 0.2, "commit_time": 0.3,
}

// rare are what happens now and then: the size, and the chance in a minute.
var rare = map[string][2]float64{
	"lock_waits": {1.5, 0.1}, "oldest_transaction": {30, 0.8}, "replication_lag": {1.5, 0.15}, "refused_connections": {0.05, 0.05},
	"pending_proposals": {1, 0.2}, "failed_proposals": {0.02, 0.01}, "leader_changes": {0.017, 0.0005}, "slow_applies": {0.03, 0.05},
}

func newMember(seed uint64) *member {
	r := rand.New(rand.NewPCG(seed, 15))
	m := &member{
		rand: r, start: time.Date(2026, 3, 2+r.IntN(7), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC),
		peak: 24 * r.Float64(), depth: 2.5 * r.Float64(), growth: 0.02 * (r.Float64() - 0.25), day: -1,
		saturday: 0.1 + 0.9*r.Float64(), sunday: 0.1 + 0.9*r.Float64(), stepped: -1,
	}
	busy := math.Exp(1.2 * r.NormFloat64())
	if seed%4 == 3 { // a quiet member: a few requests, and often none
		busy = 0.001
	}
	for _, s := range m.listSignals(seed) {
		from := source{counter: s.Counter, scale: scales[s.Name] * busy * math.Exp(0.7*r.NormFloat64()), follows: 0.3 + 0.9*r.Float64(), noise: 0.03 + 0.22*r.Float64(), seldom: 1}
		if size, is := rare[s.Name]; is {
			from.scale, from.follows, from.noise, from.seldom = size[0]*math.Exp(0.3*r.NormFloat64()), 0.3, 0.5, size[1]
		} else if from.scale == 0 {
			panic("no scale of " + s.Name)
		}
		if busy < 0.01 && from.seldom == 1 {
			from.seldom = 0.3
		}
		from.whole = strings.HasSuffix(s.Name, "sessions") || s.Name == "lock_waits" || s.Name == "watchers" || s.Name == "pending_proposals"
		m.signals = append(m.signals, from)
	}
	m.addJobs()
	return m
}

func (m *member) listSignals(seed uint64) []anomaly.Signal {
	return [][]anomaly.Signal{anomaly.PostgresSignals, anomaly.MySQLSignals, anomaly.EtcdSignals}[seed%3]
}

// addJobs adds up to two jobs of each night, and one of each hour.
func (m *member) addJobs() {
	r := m.rand
	for range r.IntN(3) {
		j := job{at: time.Duration(r.IntN(24*60)) * time.Minute, every: 24 * time.Hour, length: time.Duration(10+r.IntN(50)) * time.Minute, factor: 2 + 8*r.Float64()}
		for range 3 {
			j.hits = append(j.hits, r.IntN(len(m.signals)))
		}
		m.jobs = append(m.jobs, j)
	}
	if r.IntN(2) == 0 {
		m.jobs = append(m.jobs, job{at: time.Duration(r.IntN(60)) * time.Minute, every: time.Hour, length: time.Duration(1+r.IntN(4)) * time.Minute, factor: 1.5 + 4*r.Float64(), hits: []int{r.IntN(len(m.signals))}})
	}
}

// measure is what is measured at a time; nil while the member is not measured. NaN of what is
// missing.
func (m *member) measure(now time.Time) []float64 {
	load := m.nextLoad(now)
	boost := m.nextJobs(now)
	values := make([]float64, len(m.signals))
	for i := range m.signals {
		s := &m.signals[i]
		s.wander = 0.9*s.wander + 0.43*s.noise*m.rand.NormFloat64()
		s.now = s.scale * math.Pow(load, s.follows) * boost[i] * math.Exp(s.wander+s.noise*m.heavyTail())
		if s.seldom < 1 && m.rand.Float64() > s.seldom {
			s.now = 0
		}
		if i == m.stepped && now.Before(m.stepEnds) {
			s.now *= m.factor
		}
		if s.whole {
			s.now = math.Round(s.now)
		}
		s.total += s.now * 60
		values[i] = s.now
		if s.counter {
			values[i] = math.Floor(s.total*1000) / 1000
		}
		if m.rand.IntN(2000) == 0 {
			values[i] = math.NaN()
		}
	}
	switch at := m.rand.IntN(7 * 1440); {
	case now.Before(m.away):
		return nil
	case at == 0: // a restart: counters begin anew
		for i := range m.signals {
			m.signals[i].total = 0
		}
		m.away = now.Add(time.Duration(1+m.rand.IntN(5)) * time.Minute)
		return nil
	case at == 1:
		m.away = now.Add(time.Duration(m.rand.IntN(120)) * time.Minute)
		return nil
	case at < 60:
		return nil // one measurement took too long
	}
	return values
}

// heavyTail is Student's t with four degrees of freedom, with a deviation of 1, cut at 8.
func (m *member) heavyTail() float64 {
	sum := 0.0
	for range 4 {
		n := m.rand.NormFloat64()
		sum += n * n
	}
	return max(-8, min(8, m.rand.NormFloat64()/math.Sqrt(sum/4)/math.Sqrt2))
}

// nextLoad is the load of all signals together: 1 at the peak of a weekday.
func (m *member) nextLoad(now time.Time) float64 {
	elapsed := now.Sub(m.start).Hours() / 24
	if day := now.YearDay(); day != m.day {
		m.day, m.today = day, math.Exp(0.1*m.rand.NormFloat64())
	}
	hour := float64(now.Hour()) + float64(now.Minute())/60
	load := math.Exp(m.depth * (math.Cos((hour-m.peak)/24*2*math.Pi) - 1) / 2)
	switch now.Weekday() {
	case time.Saturday:
		load *= m.saturday
	case time.Sunday:
		load *= m.sunday
	}
	m.wander = 0.98*m.wander + 0.02*m.rand.NormFloat64()
	if m.rand.IntN(240) == 0 { // six bursts a day
		m.burstEnds = now.Add(time.Duration(1+m.rand.IntN(2)) * time.Minute)
		m.burst = min(20, math.Pow(1-m.rand.Float64(), -0.7)) // Pareto
	}
	if now.Before(m.burstEnds) {
		load *= m.burst
	}
	return load * m.today * math.Exp(m.wander+m.growth*elapsed)
}

// nextJobs is by what each signal is multiplied for jobs.
func (m *member) nextJobs(now time.Time) []float64 {
	boost := make([]float64, len(m.signals))
	for i := range boost {
		boost[i] = 1
	}
	for i := range m.jobs {
		j := &m.jobs[i]
		due := now.Truncate(j.every).Add(j.at)
		if now.Before(due.Add(time.Minute)) && !now.Before(due) && !now.Before(j.begins) {
			late := time.Duration(0)
			if j.every > time.Hour {
				late = time.Duration(m.rand.ExpFloat64() * float64(2*time.Minute))
			}
			j.begins = due.Add(late)
		}
		if !now.Before(j.begins) && now.Before(j.begins.Add(j.length)) {
			for _, hit := range j.hits {
				boost[hit] *= j.factor
			}
		}
	}
	return boost
}

// step multiplies one signal from now on.
func (m *member) step(signal int, factor float64, until time.Time) {
	m.stepped, m.factor, m.stepEnds = signal, factor, until
}
