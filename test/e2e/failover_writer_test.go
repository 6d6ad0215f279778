//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/test/netns"
	"github.com/holdfast-db/holdfast/test/podprocess"
	"github.com/holdfast-db/holdfast/test/writehistory"
)

// Times of the client that measures a failover.
const (
	// writeInterval is between two writes of one client.
	writeInterval = 10 * time.Millisecond
	// connectInterval is between two attempts to open a new connection.
	connectInterval = 50 * time.Millisecond
	// connectTimeout is for a connection to be there, TLS and password included.
	connectTimeout = time.Second
	// writeTimeout is for one write; then the client connects again.
	writeTimeout = 2 * time.Second
	// restLimit is the longest rest between two of either.
	restLimit = 500 * time.Millisecond
)

// restAfter waits for what is left of an interval after something that took so long, and on a
// slow machine for longer: clients that are never at rest would be all that it does.
func restAfter(ctx context.Context, interval, took time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(min(max(interval-took, 4*took), max(interval, restLimit))):
	}
}

// viaService is the name of the client that writes through the Service.
const viaService = "rw"

// failoverWriter is a client that writes one row after the other. It runs in the
// test's own process, so its times are of one clock with all others, and it needs no
// API server. Only its connections are of a node's, or of a pod's, network.
type failoverWriter struct {
	client  string
	config  *pgx.ConnConfig
	history *writehistory.Recorder
	stop    func()

	// turn is held for each write: who holds it has paused the client.
	turn sync.Mutex
	from *netns.Namespace
	conn *pgx.Conn
	next int
	// lastError is why the last write failed.
	lastError error
}

// insertRow returns which server wrote, and the name of its WAL segment, which begins
// with the timeline.
const insertRow = `insert into failover_rows (client, number) values ($1, $2)
	returning host(inet_server_addr()), pg_walfile_name(pg_current_wal_insert_lsn())`

// startWriterThrough writes through the cluster's -rw Service from a node.
func (f *failover) startWriterThrough(node string) *failoverWriter {
	f.t.Helper()
	var service corev1.Service
	f.readObject(&service, f.name+"-rw")
	w := f.newWriter(viaService, service.Spec.ClusterIP)
	w.enterNode(f.t, node)
	// Of the application itself: tables that the superuser makes are not its own.
	eventually(f.t, serviceTimeout, "the table is made through the Service", func(ctx context.Context) error {
		conn, err := w.connect(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "create table if not exists failover_rows (client text, number int, primary key (client, number))")
		return err
	})
	w.start(f.t, w.writeRows, w.tryConnections)
	w.goesOn(f.t)
	return w
}

// startWriterInside writes in the network of a member's pod to its own address: no cut
// cable is between the two. It is no process of the pod, so no fence ends it.
func (f *failover) startWriterInside(pod *corev1.Pod) *failoverWriter {
	f.t.Helper()
	f.inside++
	w := f.newWriter(fmt.Sprintf("inside-%d", f.inside), pod.Status.PodIP)
	// By one of its processes, which may end before its network is opened.
	eventually(f.t, failoverTimeout, "the pod's network is opened", func(context.Context) error {
		path, err := podprocess.NetworkNamespace(podprocess.Proc, string(pod.UID))
		if err == nil {
			w.from, err = netns.Open(path)
		}
		return err
	})
	w.start(f.t, w.writeRows)
	w.goesOn(f.t)
	return w
}

// newWriter knows the application's credentials, and an address in place of the
// Service's name.
func (f *failover) newWriter(client, address string) *failoverWriter {
	f.t.Helper()
	config, err := pgx.ParseConfig(f.connectionURI())
	must(f.t, err, "read the connection Secret")
	w := &failoverWriter{client: client, config: config, history: f.history}
	config.ConnectTimeout = connectTimeout
	config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{address}, nil }
	return w
}

// enterNode has the client's next connections come from a node.
func (w *failoverWriter) enterNode(t *testing.T, node string) {
	t.Helper()
	from, err := netns.Open("/run/netns/hf-" + node)
	must(t, err, "open the network of "+node)
	w.turn.Lock()
	defer w.turn.Unlock()
	w.disconnect()
	if w.from != nil {
		_ = w.from.Close()
	}
	w.from = from
}

// start runs the client's loops until stop, or the test's end.
func (w *failoverWriter) start(t *testing.T, loops ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		w.disconnect()
		if w.from != nil {
			_ = w.from.Close()
		}
	})
	t.Cleanup(w.stop)
}

// connect opens a connection from where the client is now.
func (w *failoverWriter) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config := w.config.Copy()
	from := w.from
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		return from.DialContext(ctx, network, address)
	}
	return pgx.ConnectConfig(ctx, config)
}

func (w *failoverWriter) disconnect() {
	if w.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		_ = w.conn.Close(ctx)
		w.conn = nil
	}
}

// writeRows writes until the context ends.
func (w *failoverWriter) writeRows(ctx context.Context) {
	for ctx.Err() == nil {
		w.turn.Lock()
		began := time.Now()
		w.writeRow(ctx)
		took := time.Since(began)
		w.turn.Unlock()
		restAfter(ctx, writeInterval, took)
	}
}

// writeRow writes the next row. One that was not acknowledged is not tried again: it
// may be there or not.
func (w *failoverWriter) writeRow(ctx context.Context) {
	w.next++
	row := writehistory.Write{Client: w.client, Number: w.next, Sent: w.history.Now()}
	err := w.writeOnce(ctx, &row)
	row.Ended, row.Acknowledged = w.history.Now(), err == nil
	if err != nil {
		w.lastError = err
		w.disconnect()
	}
	w.history.AddWrite(row)
}

func (w *failoverWriter) writeOnce(ctx context.Context, row *writehistory.Write) error {
	if w.conn == nil {
		conn, err := w.connect(ctx)
		if err != nil {
			return err
		}
		w.conn = conn
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// What is measured is the write, not what came before it.
	row.Sent = w.history.Now()
	var segment string
	err := w.conn.QueryRow(ctx, insertRow, w.client, row.Number).Scan(&row.Server, &segment)
	if err != nil {
		return err
	}
	row.Timeline, err = timelineOf(segment)
	return err
}

// timelineOf is that of a WAL segment by its name.
func timelineOf(segment string) (int64, error) {
	timeline, err := strconv.ParseInt(segment[:min(8, len(segment))], 16, 64)
	if err != nil {
		return 0, fmt.Errorf("the WAL segment is %q: %w", segment, err)
	}
	return timeline, nil
}

// tryConnections opens new connections that take writes until the context ends.
func (w *failoverWriter) tryConnections(ctx context.Context) {
	for ctx.Err() == nil {
		attempt := writehistory.Attempt{Began: w.history.Now()}
		attempt.Connected = w.tryConnection(ctx) == nil
		attempt.Ended = w.history.Now()
		if ctx.Err() == nil {
			w.history.AddAttempt(attempt)
		}
		restAfter(ctx, connectInterval, attempt.Ended-attempt.Began)
	}
}

func (w *failoverWriter) tryConnection(ctx context.Context) error {
	w.turn.Lock()
	probe := &failoverWriter{config: w.config, from: w.from}
	w.turn.Unlock()
	conn, err := probe.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	defer func() { _ = conn.Close(ctx) }()
	var standby bool
	if err := conn.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&standby); err != nil {
		return err
	}
	if standby {
		return errors.New("the Service leads to a standby")
	}
	return nil
}

// pause holds the client between two writes until the function that it returns is
// called.
func (w *failoverWriter) pause() (resume func()) {
	w.turn.Lock()
	return sync.OnceFunc(w.turn.Unlock)
}

// countWrites are the acknowledged and the failed writes since a time.
func (w *failoverWriter) countWrites(since time.Duration) (acknowledged, failed int) {
	for _, row := range w.history.Writes(since, w.client) {
		if row.Acknowledged {
			acknowledged++
		} else {
			failed++
		}
	}
	return acknowledged, failed
}

// goesOn waits until writes that are sent from now on are acknowledged.
func (w *failoverWriter) goesOn(t *testing.T) {
	t.Helper()
	since := w.history.Now()
	eventually(t, failoverTimeout, w.client+" writes", func(context.Context) error {
		if acknowledged, _ := w.countWrites(since); acknowledged < 3 {
			return fmt.Errorf("%d writes are acknowledged, the last error is %w", acknowledged, w.readError())
		}
		return nil
	})
}

// writesOn waits until a write on a timeline, or a later one, is acknowledged.
func (w *failoverWriter) writesOn(t *testing.T, timeline int64) {
	t.Helper()
	eventually(t, failoverTimeout, fmt.Sprintf("%s writes on timeline %d", w.client, timeline), func(context.Context) error {
		rows := w.history.Writes(0, w.client)
		for i := len(rows) - 1; i >= 0; i-- {
			if rows[i].Acknowledged {
				if rows[i].Timeline >= timeline {
					return nil
				}
				return fmt.Errorf("the last write was acknowledged on timeline %d, the last error is %w", rows[i].Timeline, w.readError())
			}
		}
		return w.readError()
	})
}

func (w *failoverWriter) readError() error {
	w.turn.Lock()
	defer w.turn.Unlock()
	if w.lastError == nil {
		return errors.New("none")
	}
	return w.lastError
}

// keptRows are the numbers that a member has, by client.
func (f *failover) keptRows(pod string) map[string][]int {
	f.t.Helper()
	kept := map[string][]int{}
	out, err := runLocalQuery(f.t.Context(), f.namespace, pod, "app", "select client || ' ' || number from public.failover_rows")
	must(f.t, err, "read the rows of "+pod)
	for line := range strings.Lines(out) {
		client, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(number)
		must(f.t, err, "read a row of "+pod)
		kept[client] = append(kept[client], n)
	}
	return kept
}
