package insights

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
	"github.com/holdfast-db/holdfast/internal/loginsight/loginsighttest"
)

const deadlock = "2026-03-01 10:00:00.123 UTC [42] 40P01 7919 (client backend) ERROR:  deadlock detected"

func newPostgres() *Analyzer {
	return NewAnalyzer(TextLog{Parse: loginsight.ParsePostgres, IsContinued: loginsight.IsPostgresContinuation}, "orders-0", "uid-0")
}

// readAll reads the lines that wait.
func (a *Analyzer) readAll() {
	for {
		select {
		case line := <-a.lines:
			a.readLine(line, time.Now().UTC())
		default:
			return
		}
	}
}

// Hear returns at once although no line is read, and what does not fit is counted.
func TestTheDatabaseIsNeverBlocked(t *testing.T) {
	a := newPostgres()
	for range waitingLines + 500 {
		a.Hear(deadlock)
	}
	if got := a.Report().Dropped; got != 500 {
		t.Errorf("%d lines are dropped", got)
	}
	a.readAll()
	if got := a.Report(); got.Lines != waitingLines || len(got.Classes) != 1 || got.Classes[0].Count != waitingLines {
		t.Errorf("%+v", got)
	}
	var none *Analyzer // of a host that reads no text log
	none.Hear(deadlock)
	none.SetUnread("for a reason")
}

// Further lines of a message take no place of others, and long lines no memory.
func TestWhatWaitsIsBounded(t *testing.T) {
	a := newPostgres()
	for range 10 * waitingLines {
		a.Hear("\tselect 1")
	}
	a.Hear(deadlock + strings.Repeat("x", 1<<20))
	if got := len(<-a.lines); got != defaultLongest || a.dropped.Load() != 0 {
		t.Errorf("a line of %d bytes waits, %d are dropped", got, a.dropped.Load())
	}
}

func TestUnreadLines(t *testing.T) {
	a := newPostgres()
	a.SetUnread("spec.parameters.log_line_prefix is declared")
	a.Hear(deadlock)
	a.readAll()
	if got := a.Report(); got.Lines != 0 || got.Unread == "" {
		t.Errorf("%+v", got)
	}
	a.SetUnread("")
	a.Hear(deadlock)
	a.Hear("no entry")
	a.Hear(strings.Replace(deadlock, "ERROR", "DETAIL", 1))
	a.readAll()
	if got := a.Report(); got.Lines != 3 || got.Unclassified != 1 || got.Unread != "" || got.Pod != "orders-0" || got.PodUID != "uid-0" {
		t.Errorf("%+v", got)
	}
}

// What is found in a minute is one revision. Another one is published ten minutes later, and
// none in a steady state.
func TestRevisionsArePublishedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newPostgres()
		var published []time.Duration
		began := time.Now()
		ctx, stop := context.WithCancel(t.Context())
		go a.Follow(ctx, func(string) { published = append(published, time.Since(began)) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(published) != 0 {
			t.Errorf("nothing was found, and it is published: %v", published)
		}
		for range 600 { // events all the time, whose number grows
			a.Hear(deadlock)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if len(published) != 1 || published[0] < 2*time.Minute || published[0] > 2*time.Minute+2*checkInterval {
			t.Errorf("published at %v", published)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(published) != 2 || published[1]-published[0] < publishInterval {
			t.Errorf("published at %v", published)
		}
		stop()
		synctest.Wait()
	})
}

// A line of a clock that is ahead counts as of now, so that it is not the last for ever.
func TestTimesAreNotOfTheFuture(t *testing.T) {
	a := newPostgres()
	a.Hear(strings.Replace(deadlock, "2026", "2126", 1))
	a.readAll()
	if got := a.Report().Classes[0].Last; got.After(time.Now()) {
		t.Errorf("seen at %s", got)
	}
}

// What is answered has no canary, whatever the lines have.
func TestTheAnswerHasNoCanary(t *testing.T) {
	for name, lines := range map[string]func(string) []string{"PostgreSQL": loginsighttest.PostgresLines, "etcd": loginsighttest.EtcdLines, "MySQL": loginsighttest.MySQLLines} {
		parse := map[string]loginsight.Parser{"PostgreSQL": loginsight.ParsePostgres, "etcd": loginsight.ParseEtcd, "MySQL": loginsight.ParseMySQL}[name]
		a := NewAnalyzer(TextLog{Parse: parse}, "orders-0", "uid-0")
		canaries := loginsighttest.Canaries(200)
		for _, canary := range canaries {
			for _, entry := range lines(canary) {
				for line := range strings.SplitSeq(entry, "\n") {
					a.Hear(line)
				}
			}
			a.readAll()
		}
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, agentapi.InsightsPath, nil))
		var answer agentapi.Insights
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Classes) == 0 || answer.Dropped != 0 {
			t.Fatalf("%s: %v, %+v", name, err, answer)
		}
		for _, canary := range canaries {
			if strings.Contains(w.Body.String(), canary) {
				t.Errorf("%s: canary %s is answered: %s", name, canary, w.Body)
			}
		}
	}
}

// A program in the container asks at the socket, which an earlier agent may have left.
func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "insights") // a path that fits into a socket's address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, agentapi.InsightsSocket)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := newPostgres()
	a.Hear(deadlock)
	a.readAll()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.ServeSocket(ctx, path) }()
	agenttest.WaitUntil(t, func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode()&os.ModeSocket != 0 && info.Mode().Perm() == 0o600
	})
	cmd := NewCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--socket", path})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var answer agentapi.Insights
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || len(answer.Classes) != 1 || answer.Classes[0].Class != "Deadlock" {
		t.Errorf("%v: %s", err, out.String())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	cmd.SetErr(&out)
	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Error("an agent that does not listen is no error")
	}
}

// The ring and what waits take at most 8 MiB, with the longest lines of each engine.
func TestMemory(t *testing.T) {
	for name, log := range map[string]TextLog{"PostgreSQL": {Parse: loginsight.ParsePostgres}, "etcd": {Parse: loginsight.ParseEtcd, Longest: 4 << 10}} {
		before := heapInUse()
		a := NewAnalyzer(log, "orders-0", "uid-0")
		class := loginsight.FindClass("SlowStatement")
		for i := range 5000 {
			a.ring.Add(loginsight.Event{Class: class, QueryID: int64(i + 1), Time: time.Now()})
		}
		for range 2 * waitingLines {
			a.Hear(strings.Repeat("x", 16<<10))
		}
		used := int64(heapInUse()) - int64(before)
		t.Logf("%s: %d KiB", name, used>>10)
		if used > 8<<20 {
			t.Errorf("%s: %d bytes are in use", name, used)
		}
		runtime.KeepAlive(a)
	}
}

func heapInUse() uint64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// BenchmarkHear reports how many lines a second one processor hears and reads.
func BenchmarkHear(b *testing.B) {
	a := newPostgres()
	lines := loginsighttest.PostgresLines("orders")
	n := 0
	for b.Loop() {
		a.Hear(lines[n%len(lines)])
		if n++; n%waitingLines == 0 {
			a.readAll()
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
	if a.dropped.Load() > 0 {
		b.Error("lines were dropped")
	}
}
