//go:build bench

package overhead

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/stats"
)

const (
	// slot is how far the beginnings of two runs are apart. Six are a minute, in which the
	// agent measures once.
	slot = 10 * time.Second
	// beforeTick is how long before the agent measures the first run of a minute begins.
	beforeTick = 4 * time.Second
	// alonePort is that of the server without an agent.
	alonePort = 5433
	// scale of pgbench's tables: 16 MB each.
	scale   = 10
	clients = 4
)

// minutes have three pairs each. The first run of a minute is one with the agent at work, for
// the agent measures then: after that, the orders take turns.
var minutes = [2][6]bool{{true, false, false, true, true, false}, {true, false, false, true, false, true}}

// comparison is what one load does with all that the agent does, and without.
type comparison struct {
	name, load, without string
	parameters          map[string]string
	// seconds of a run.
	seconds int
	// port without the agent at work; turn switches it on or off.
	port int
	turn func(on bool)
}

var (
	statementsLogged = map[string]string{"log_min_duration_statement": "0"}
	otherPrefix      = map[string]string{"log_min_duration_statement": "0", "log_line_prefix": "%m [%p] "}
)

// TestBenchThroughput compares what PostgreSQL does beside an agent that reads its text log,
// measures it once a minute and answers scrapes, with what it does without that.
func TestBenchThroughput(t *testing.T) {
	m := newMember(t, startPlane(t), "postgres", "now")
	m.start()
	m.fill()
	m.stop()
	// Both servers begin with the same files.
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", tree(agentapi.DataDir, "pgdata"), tree("srv", "alone")).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	m.start()
	fmt.Println("\n| load | compared with | pairs | tps with | tps without | with / without | CPU of a transaction, with / without | log lines a second | not read | agent's share of a core, with | without | its sessions' share, with | without |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, c := range []comparison{
		{name: "Same", load: "usual", without: "the same server, not scraped or measured", port: serverPort, seconds: 9},
		{name: "Usual", load: "usual", without: "a server without an agent", port: alonePort, seconds: 9},
		{name: "StatementsLogged", load: "every statement logged", without: "a server without an agent", port: alonePort, seconds: 9, parameters: statementsLogged},
		{name: "StatementsUnread", load: "every statement logged", without: "the agent passes the log on and does not read it", port: serverPort, seconds: 8, parameters: statementsLogged, turn: func(on bool) {
			if on {
				m.setParameters(statementsLogged, "log_line_prefix", agentPrefix)
			} else {
				m.setParameters(otherPrefix, "log_line_prefix", otherPrefix["log_line_prefix"])
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.t = t
			m.compare(c)
		})
	}
	m.t = t
	if m.countTuningSamples() == 0 {
		t.Error("the agent has not measured the database")
	}
}

// agentPrefix is what the agent reads lines by.
var agentPrefix string

// pairsWanted is how many pairs of runs there are: a multiple of three, at least 21.
func pairsWanted(t *testing.T) int {
	t.Helper()
	pairs := 21
	if set := os.Getenv("BENCH_PAIRS"); set != "" {
		var err error
		if pairs, err = strconv.Atoi(set); err != nil || pairs < 1 {
			t.Fatalf("BENCH_PAIRS: %q is no number of pairs", set)
		}
	}
	return pairs
}

// result is what the runs of a comparison did.
type result struct {
	with, without, ratios []float64
	// of the agent, and of its sessions in its server
	withCPU, withoutCPU           time.Duration
	withSessions, withoutSessions time.Duration
	withTime, withoutTime         time.Duration
	lines, dropped                int64
	// cpuRatios are those of the processors' time that a transaction takes, of the server,
	// the agent and pgbench: where they have nothing else to do, it is what limits them.
	cpuRatios []float64
}

func (m *member) compare(c comparison) {
	m.t.Helper()
	value := "-1"
	if c.parameters != nil {
		value = "0"
	}
	m.setParameters(c.parameters, "log_min_duration_statement", value)
	if c.port == alonePort {
		stop := m.startAlone()
		defer stop()
	}
	for _, port := range []int{serverPort, c.port} { // both are warm
		m.runLoad(port, 3)
	}
	r := m.runPairs(c)
	if c.parameters != nil && r.lines == 0 {
		m.t.Error("the agent has read no line")
	}
	fmt.Printf("| %s | %s | %d | %.0f | %.0f | %s | %s | %.0f | %d | %.1f %% | %.1f %% | %.1f %% | %.1f %% |\n", c.load, c.without, len(r.ratios),
		stats.Median(r.with), stats.Median(r.without), formatRatio(r.ratios), formatRatio(r.cpuRatios),
		float64(r.lines)/r.withTime.Seconds(), r.dropped,
		100*r.withCPU.Seconds()/r.withTime.Seconds(), 100*r.withoutCPU.Seconds()/r.withoutTime.Seconds(),
		100*r.withSessions.Seconds()/r.withTime.Seconds(), 100*r.withoutSessions.Seconds()/r.withoutTime.Seconds())
}

// formatRatio is the median of ratios, and the interval that it is in with a confidence of 95 %.
func formatRatio(ratios []float64) string {
	low, high := stats.BootstrapMedian(ratios, 0.95)
	return fmt.Sprintf("%.3f (%.3f to %.3f)", stats.Median(slices.Clone(ratios)), low, high)
}

// runPairs has the agent measure the database while a run with it lasts, and never while one
// without it does.
func (m *member) runPairs(c comparison) result {
	m.t.Helper()
	var r result
	begin := m.began
	for time.Until(begin) < beforeTick+time.Second {
		begin = begin.Add(time.Minute)
	}
	begin = begin.Add(-beforeTick)
	before := m.readInsights()
	for minute := 0; len(r.ratios) < pairsWanted(m.t); minute++ {
		var last load
		for i, on := range minutes[minute%2] {
			if c.turn != nil {
				c.turn(on)
			}
			if late := -time.Until(begin.Add(time.Duration(i) * slot)); late > 0 {
				fmt.Fprintf(os.Stderr, "run %d of minute %d begins %s late\n", i, minute, late.Round(time.Millisecond))
			}
			time.Sleep(time.Until(begin.Add(time.Duration(i) * slot)))
			this := m.runOnce(c, on, &r)
			with, without := this, last
			if !on {
				with, without = last, this
			}
			if last = this; i%2 == 1 {
				r.ratios = append(r.ratios, with.rate/without.rate)
				r.cpuRatios = append(r.cpuRatios, with.cpu/without.cpu)
			}
			_ = os.Truncate(m.log, 0)
			_ = os.Truncate(tree("srv", "alone.log"), 0)
		}
		fmt.Fprintf(os.Stderr, "%s: after minute %d throughput %.3f, CPU %.3f\n", c.load, minute+1, r.ratios, r.cpuRatios)
		begin = begin.Add(time.Minute)
	}
	if c.turn != nil {
		c.turn(true)
	}
	after := m.readInsights()
	if after.Unread != "" {
		m.t.Errorf("the log is not read: %s", after.Unread)
	}
	r.lines, r.dropped = after.Lines-before.Lines, after.Dropped-before.Dropped
	return r
}

// load is what pgbench did: transactions a second, and the processors' seconds of each.
type load struct{ rate, cpu float64 }

// runOnce is one run. A scrape stands in the middle of one with the agent at work.
func (m *member) runOnce(c comparison, on bool, r *result) load {
	m.t.Helper()
	port, data, scraped := c.port, tree(agentapi.DataDir, "pgdata"), make(chan struct{})
	if on {
		port = serverPort
		time.AfterFunc(time.Duration(c.seconds)*time.Second/2, func() {
			defer close(scraped)
			m.scrape()
		})
	} else {
		close(scraped)
	}
	if port == alonePort {
		data = tree("srv", "alone")
	}
	postmaster, _, _ := strings.Cut(readFile(m.t, filepath.Join(data, "postmaster.pid")), "\n")
	began, server, agent := time.Now(), usedByServer(postmaster), usedCPU(m.cmd.Process.Pid)
	own, _, _ := strings.Cut(readFile(m.t, tree(agentapi.DataDir, "pgdata", "postmaster.pid")), "\n")
	sessions := usedBySessions(own)
	done := m.runLoad(port, c.seconds)
	<-scraped
	sessions = usedBySessions(own) - sessions
	server, agent = usedByServer(postmaster)-server, usedCPU(m.cmd.Process.Pid)-agent
	if on {
		r.with, r.withCPU, r.withTime = append(r.with, done.rate), r.withCPU+agent, r.withTime+time.Since(began)
		r.withSessions += sessions
	} else {
		r.without, r.withoutCPU, r.withoutTime = append(r.without, done.rate), r.withoutCPU+agent, r.withoutTime+time.Since(began)
		r.withoutSessions += sessions
	}
	if on || port == serverPort { // a server alone has no agent
		server += agent
	}
	done.cpu += server.Seconds() / (done.rate * float64(c.seconds))
	return done
}

var transactions = regexp.MustCompile(`(?m)^tps = ([\d.]+) `)

// runLoad has pgbench's clients run its standard transactions, over TLS as applications do.
func (m *member) runLoad(port, seconds int) load {
	m.t.Helper()
	out, used := m.pgbench(port, "--no-vacuum", "--client="+strconv.Itoa(clients), "--time="+strconv.Itoa(seconds))
	found := transactions.FindStringSubmatch(out)
	if found == nil {
		m.t.Fatalf("pgbench says no rate: %s", out)
	}
	rate, _ := strconv.ParseFloat(found[1], 64)
	return load{rate: rate, cpu: used.Seconds() / (rate * float64(seconds))}
}

func (m *member) pgbench(port int, args ...string) (printed string, used time.Duration) {
	m.t.Helper()
	cmd := command(filepath.Join(os.Getenv("HOLDFAST_TREE_PATH"), "pgbench"), args...)
	cmd.Env = append(cmd.Env, "PGHOST=localhost", "PGPORT="+strconv.Itoa(port), "PGUSER=app", "PGDATABASE=app", "PGPASSWORD="+appPassword, "PGSSLMODE=require")
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("pgbench: %v\n%s", err, out)
	}
	return string(out), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// fill makes pgbench's tables, once the primary has their database.
func (m *member) fill() {
	m.t.Helper()
	m.await("the database of applications", func(context.Context) (err error) {
		agentPrefix, err = readSetting(serverPort, "log_line_prefix")
		return err
	})
	m.pgbench(serverPort, "--initialize", "--quiet", "--scale="+strconv.Itoa(scale))
}

// readSetting asks a server for one of its settings.
func readSetting(port int, name string) (value string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("host=localhost port=%d user=app password=%s dbname=app sslmode=require", port, appPassword))
	if err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, "select current_setting($1)", name).Scan(&value)
	return value, errors.Join(err, conn.Close(ctx))
}

// startAlone starts a server with the settings and arguments of that beside the agent. It
// writes its log where the agent does: to the program that stands in for the container runtime.
func (m *member) startAlone() (stop func()) {
	m.t.Helper()
	pid, _, _ := strings.Cut(readFile(m.t, tree(agentapi.DataDir, "pgdata", "postmaster.pid")), "\n")
	line, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil {
		m.t.Fatal(err)
	}
	move := strings.NewReplacer(agentapi.RunDir, "/srv/run", agentapi.DataDir+"/pgdata", "/srv/alone").Replace
	args := strings.Split(strings.TrimSuffix(move(string(line)), "\x00"), "\x00")
	if out, err := exec.CommandContext(m.t.Context(), "bash", "-c", `rm -rf "$2" && mkdir "$2" && cp -a "$1"/tls "$1"/*.conf "$2"/ && chown `+strconv.Itoa(user)+` "$2"`, "bash", tree(agentapi.RunDir), tree("srv", "run")).CombinedOutput(); err != nil {
		m.t.Fatalf("%v %s", err, out)
	}
	settings := tree("srv", "run", "postgresql.conf")
	if err := os.WriteFile(settings, []byte(move(readFile(m.t, tree(agentapi.RunDir, "postgresql.conf")))), 0o644); err != nil { //nolint:gosec // read by the server
		m.t.Fatal(err)
	}
	log := m.openLog(tree("srv", "alone.log"))
	defer log.Close()
	cmd := command(filepath.Join(os.Getenv("HOLDFAST_TREE_PATH"), "postgres"), append(args[1:], "-c", "port="+strconv.Itoa(alonePort))...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.await("the server without an agent", func(context.Context) error {
		_, err := readSetting(alonePort, "port")
		return err
	})
	return func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
