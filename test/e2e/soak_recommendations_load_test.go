//go:build soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// mostPatches bounds a series of patches for one setting: each is at most twice the value
// before.
const mostPatches = 4

// nextRecommendation is within what time another recommendation comes, if one does: it takes
// ten minutes of measurements, which begin anew where a primary restarts.
const nextRecommendation = 15 * time.Minute

// symptomCase is a load that a setting is too small for.
type symptomCase struct {
	name string
	// setting that is too small, with its value.
	setting, value string
	// parameters are declared beside it, and lines are more of the spec; none where empty.
	parameters string
	lines      []string
	// memory of a member.
	memory string
	// evidence are words of what speaks for a larger one, and restart says that members
	// restart for it.
	evidence string
	restart  bool
	// prepare makes what the load needs, and load is run every loadInterval.
	prepare string
	load    []string
	// counter is a query for the symptom, a number that rises with it, or logged is a line that
	// the server's text log has for each; unit is what is counted.
	counter, logged, unit string
}

var symptomCases = []symptomCase{
	{
		// 24 MiB of rows are read by their keys, at random: a table that is read as a whole
		// would not stay in the buffers of any size.
		name: "HotBuffers", setting: "shared_buffers", value: "16MB", evidence: "of block accesses", restart: true, memory: "512Mi",
		prepare: "create table hot_load as select g as id, repeat(md5(g::text), 22) as v from generate_series(1, 34000) g; alter table hot_load add primary key (id); analyze hot_load",
		load:    []string{"do $$ declare row int; begin for i in 1..20000 loop row := 1 + floor(random() * 34000); perform v from hot_load where id = row; end loop; end $$"},
		counter: "select sum(blks_read) from pg_stat_database", unit: "blocks read",
	},
	{
		// The sort takes 1.2 MiB.
		name: "Spills", setting: "work_mem", value: "1MB", evidence: "temporary files", memory: "512Mi",
		prepare: "create table sort_load as select md5(g::text) as v from generate_series(1, 15000) g; analyze sort_load",
		load:    []string{"select count(*) from (select v from sort_load order by reverse(v) offset 1) s"},
		counter: "select sum(temp_bytes) from pg_stat_database", unit: "bytes of temporary files",
	},
	{
		// 52 MB of WAL in a minute, however often the load is run, and what was missed in a pause
		// does not follow at once. 128MB force a checkpoint after 80 MB at the latest, before one
		// is due after two minutes, and 256MB after 144 MB at the earliest. One that is due is left
		// out if nothing was written since the last one was complete: half of the two minutes are
		// more than the time between two bursts. More WAL takes a volume of its own on this
		// machine, whose content counts as memory of the members.
		name: "Checkpoints", setting: "max_wal_size", value: "128MB", evidence: "were forced", memory: "3Gi",
		parameters: `checkpoint_timeout: 2min, checkpoint_completion_target: "0.5", log_checkpoints: "on"`, lines: []string{"storage: {size: 2Gi, storageClass: sized}"},
		prepare: "create table wal_load (v text); create table wal_clock as select now() as at",
		load: []string{"truncate wal_load; insert into wal_load select repeat(md5(g::text), 20) from generate_series(1, (select 1200 * least(extract(epoch from now() - at), 20) from wal_clock)::int) g; " +
			"update wal_clock set at = now()"},
		// Others are asked for as well: by backups, and by the agent to free space.
		logged: "checkpoint starting: wal", unit: "forced checkpoints",
	},
}

// TestSoakPostgresSymptomsGo: clusters with a setting that is too small for their load get a
// larger one recommended, with the evidence. The patch that the plugin writes is committed,
// and Flux applies it while the load goes on. If that is not enough, the next one follows, and
// is committed, until nothing more is recommended for longer than that takes. Then the
// symptom is gone. It takes half an hour for one patch: the clusters stand side by side.
func TestSoakPostgresSymptomsGo(t *testing.T) {
	for _, s := range symptomCases {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t)
		})
	}
}

func (s symptomCase) run(t *testing.T) {
	parameters := s.setting + ": " + s.value
	if s.parameters != "" {
		parameters += ", " + s.parameters
	}
	d := deliverCluster(t, nil, append([]string{"replicas: 2", "parameters: {" + parameters + "}", "resources: {limits: {memory: " + s.memory + "}}"}, s.lines...)...)
	c, field := d.c, "spec.parameters."+s.setting
	c.pluginPrints(0, []string{"recommend", c.name}, "Nothing is recommended.")
	c.runSQL(leading, s.prepare)
	load := c.startSteadyLoad(s.load)

	from := s.countSymptom(c)
	r := c.awaitRecommendation(field)
	before := s.riseSince(c, from)
	t.Logf("%s is recommended: %s", s.setting, s.describe(before))
	value := s.value
	for n := 0; ; n++ {
		t.Logf("%s: %s, now %s, restart %t: %s", r.Field, r.Value, r.Current, r.Restart, r.Evidence)
		if n == mostPatches {
			t.Fatalf("patch %d is recommended", n+1)
		}
		if r.Current != value || !strings.Contains(r.Evidence, s.evidence) || r.Restart != s.restart {
			t.Errorf("recommended is %+v", r)
		}
		c.pluginPrints(0, []string{"recommend", c.name}, r.Field, r.Current, r.Value, r.Evidence)
		bursts := load.count()
		d.commitRecommendation(n, *r)
		c.waitReady()
		value = r.Value
		load.goesOn(bursts)

		// Pages come into the buffers once: that is no symptom.
		load.goesOn(load.count())
		from = s.countSymptom(c)
		if r = c.watchRecommendation(field, nextRecommendation); r == nil {
			break
		}
		t.Logf("%s: %s, and it is not enough", s.setting, s.describe(s.riseSince(c, from)))
	}
	after := s.riseSince(c, from)
	t.Logf("%s is %s: %s, before %s", s.setting, value, s.describe(after), s.describe(before))
	if after.perMinute() > before.perMinute()/10 {
		t.Errorf("with %s there are %s, and before there were %s", value, s.describe(after), s.describe(before))
	}
	c.pluginPrints(0, []string{"recommend", c.name}, "Nothing is recommended.")
	must(t, load.stop(), "run the load")
}

// symptom is what a counter of a member says at one time, or what it rose by until then.
type symptom struct {
	pod   string
	at    time.Time
	count float64
	took  time.Duration
}

func (s symptomCase) countSymptom(c *cluster) symptom {
	c.t.Helper()
	now := symptom{pod: c.podName(leading), at: time.Now()}
	if s.logged != "" {
		log := readLogs(c.t.Context(), c.t, c.namespace)[now.pod+".postgres.previous=false"]
		now.count = float64(strings.Count(log, s.logged))
		return now
	}
	count, err := strconv.ParseFloat(c.runSQL(c.ordinalOf(now.pod), s.counter), 64)
	must(c.t, err, "read the counter")
	now.count = count
	return now
}

// riseSince is what the counter rose by. A counter of another member, or one that began anew,
// says nothing.
func (s symptomCase) riseSince(c *cluster, from symptom) symptom {
	c.t.Helper()
	now := s.countSymptom(c)
	if now.pod != from.pod || now.count < from.count {
		c.t.Fatalf("%s counts %.0f after %s counted %.0f", now.pod, now.count, from.pod, from.count)
	}
	return symptom{pod: now.pod, at: now.at, count: now.count - from.count, took: now.at.Sub(from.at)}
}

func (s symptom) perMinute() float64 { return s.count / s.took.Minutes() }

func (s symptomCase) describe(rose symptom) string {
	return fmt.Sprintf("%.0f %s in %s, %.1f a minute", rose.count, s.unit, rose.took.Round(time.Second), rose.perMinute())
}

// awaitRecommendation waits until another value of a field is recommended.
func (c *cluster) awaitRecommendation(field string) *v1alpha1.RecommendationStatus {
	c.t.Helper()
	obj := c.waitFor(recommendationTimeout, field+" is recommended", func(obj *v1alpha1.PostgresCluster) error {
		if findRecommended(obj, field) == nil {
			return fmt.Errorf("recommended is %+v", obj.Status.Recommendations)
		}
		return nil
	})
	return findRecommended(obj, field)
}

// watchRecommendation returns what is recommended for a field within a time; nil for nothing.
func (c *cluster) watchRecommendation(field string, period time.Duration) *v1alpha1.RecommendationStatus {
	c.t.Helper()
	for until := time.Now().Add(period); time.Now().Before(until); time.Sleep(pollInterval) {
		if r := findRecommended(c.getCluster(), field); r != nil {
			return r
		}
	}
	return nil
}

func findRecommended(obj *v1alpha1.PostgresCluster, field string) *v1alpha1.RecommendationStatus {
	for i := range obj.Status.Recommendations {
		if r := &obj.Status.Recommendations[i]; r.Field == field {
			return r
		}
	}
	return nil
}

// steadyLoad runs statements on whichever member leads, also where members restart.
type steadyLoad struct {
	c      *cluster
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	bursts int
	failed error // since the last burst that did not
}

func (c *cluster) startSteadyLoad(statements []string) *steadyLoad {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &steadyLoad{c: c, cancel: cancel, ended: make(chan struct{})}
	c.t.Cleanup(func() { cancel(); <-l.ended })
	go func() {
		defer close(l.ended)
		for ctx.Err() == nil {
			l.note(ctx, c.runBurst(ctx, statements))
			select {
			case <-ctx.Done():
			case <-time.After(loadInterval):
			}
		}
	}()
	l.goesOn(0)
	return l
}

// runBurst runs statements on the primary, if there is one.
func (c *cluster) runBurst(ctx context.Context, statements []string) error {
	primary, _, err := c.findPrimary(ctx)
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if _, err := runLocalQuery(ctx, c.namespace, primary.Name, "app", statement); err != nil {
			return errors.Join(errors.New(statement), err)
		}
	}
	return nil
}

func (l *steadyLoad) note(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.bursts, l.failed = l.bursts+1, nil
	case ctx.Err() == nil:
		l.failed = err
	}
}

func (l *steadyLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bursts
}

// goesOn waits for two more bursts: the first may have begun before.
func (l *steadyLoad) goesOn(after int) {
	l.c.t.Helper()
	eventually(l.c.t, serviceTimeout, "the load goes on", func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.bursts < after+2 {
			return fmt.Errorf("%d bursts after %d: %w", l.bursts, after, l.failed)
		}
		return nil
	})
}

// stop ends the load, and says what failed last, if nothing succeeded after it.
func (l *steadyLoad) stop() error {
	l.cancel()
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.t.Logf("the load had %d bursts", l.bursts)
	return l.failed
}
