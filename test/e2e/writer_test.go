//go:build e2e || soak

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// writer inserts one row after the other through a Service, each over a new
// connection, and remembers those that were acknowledged.
type writer struct {
	t    *testing.T
	app  *clientPod
	c    *cluster
	done chan struct{}
	rows *rows
}

type rows struct {
	mu    sync.Mutex
	acked []int
}

func (r *rows) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = append(r.acked, n)
}

// with is the same writer, for a part of a test.
func (w *writer) with(t *testing.T) *writer {
	part := *w
	part.t = t
	return &part
}

// inserts tells which rows were acknowledged, one a line. A row that was not
// is not tried again: it may be there or not.
const inserts = `
uri=$(cat /tmp/uri)
n=0
while [ ! -e /tmp/stop ]; do
	n=$((n+1))
	PGCONNECT_TIMEOUT=3 psql "$uri" -XAtq -v ON_ERROR_STOP=1 -c "insert into written values ($n)" 2>/dev/null && echo $n
	sleep 0.05
done`

// startWriter makes the table and writes until stop, or the test's end.
func startWriter(c *cluster) *writer {
	c.t.Helper()
	w := &writer{t: c.t, app: newClient(c.t), c: c, done: make(chan struct{}), rows: &rows{}}
	w.app.mustPsql(c.t, c.uri(), "create table written (id int primary key)")
	w.app.write(c.t, "/tmp/uri", c.uri())
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	go func() {
		err := stream(ctx, w.app.namespace, w.app.name, nil, in, io.Discard, "bash", "-c", inserts)
		in.CloseWithError(err)
	}()
	go func() {
		defer close(w.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				w.rows.add(n)
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-w.done
	})
	w.goesOn()
	return w
}

func (w *writer) count() int {
	w.rows.mu.Lock()
	defer w.rows.mu.Unlock()
	return len(w.rows.acked)
}

// goesOn waits until more was acknowledged: writes are served now.
func (w *writer) goesOn() {
	w.t.Helper()
	before := w.count()
	eventually(w.t, serviceTimeout, "writes go on", func(context.Context) error {
		if now := w.count(); now < before+3 {
			return fmt.Errorf("%d acknowledged after %d", now, before)
		}
		return nil
	})
}

// stop ends the writing and says which acknowledged rows a member lacks.
func (w *writer) stop() {
	w.t.Helper()
	w.app.write(w.t, "/tmp/stop", "stop")
	eventually(w.t, execTimeout, "the writer ends", func(context.Context) error {
		select {
		case <-w.done:
			return nil
		default:
			return fmt.Errorf("it still runs")
		}
	})
	if w.count() == 0 {
		w.t.Fatal("nothing was written")
	}
	w.t.Logf("%d rows acknowledged", w.count())
}

// check says which acknowledged rows a member lacks.
func (w *writer) check(ordinal int) {
	w.t.Helper()
	there := map[string]bool{}
	for _, id := range strings.Fields(w.c.sql(ordinal, "select id from written")) {
		there[id] = true
	}
	var lost []int
	for _, n := range w.rows.acked {
		if !there[strconv.Itoa(n)] {
			lost = append(lost, n)
		}
	}
	if len(lost) > 0 {
		w.t.Errorf("%s lost %d of %d acknowledged rows: %v", w.c.pod(ordinal), len(lost), len(w.rows.acked), lost)
	}
}
