//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/test/netns"
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

// rowSession is a connection of an application to a database, in which it has a table
// failover_rows.
type rowSession interface {
	createTable(ctx context.Context) error
	// insert writes a row, and returns which server wrote it, and the timeline on which it
	// did; 0 of a database that has none.
	insert(ctx context.Context, client string, number int) (server string, timeline int64, err error)
	// checkWritable fails where the server takes no writes.
	checkWritable(ctx context.Context) error
	close(ctx context.Context)
}

// openRows opens a connection from a network.
type openRows func(ctx context.Context, from *netns.Namespace) (rowSession, error)

// rowWriter is a client that writes one row after the other. It runs in the test's own
// process, so its times are of one clock with all others, and it needs no API server.
// Only its connections are of a node's, or of a pod's, network.
type rowWriter struct {
	client  string
	open    openRows
	history *writehistory.Recorder
	stop    func()

	// turn is held for each write: who holds it has paused the client.
	turn    sync.Mutex
	from    *netns.Namespace
	session rowSession
	next    int
	// lastError is why the last write failed.
	lastError error
}

// enterNode has the client's next connections come from a node.
func (w *rowWriter) enterNode(t *testing.T, node string) {
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
func (w *rowWriter) start(t *testing.T, loops ...func(context.Context)) {
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

// connectFrom opens a connection within the time that a client gives it.
func connectFrom(ctx context.Context, open openRows, from *netns.Namespace) (rowSession, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return open(ctx, from)
}

// connectBy has the client connect with other credentials from now on.
func (w *rowWriter) connectBy(open openRows) {
	w.turn.Lock()
	defer w.turn.Unlock()
	w.disconnect()
	w.open = open
}

func (w *rowWriter) disconnect() {
	if w.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		w.session.close(ctx)
		w.session = nil
	}
}

// makeTable makes the table, as the application itself: tables that the superuser makes
// are not its own.
func (w *rowWriter) makeTable(ctx context.Context) error {
	session, err := connectFrom(ctx, w.open, w.from)
	if err != nil {
		return err
	}
	defer session.close(ctx)
	return session.createTable(ctx)
}

// writeRows writes until the context ends.
func (w *rowWriter) writeRows(ctx context.Context) {
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
func (w *rowWriter) writeRow(ctx context.Context) {
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

func (w *rowWriter) writeOnce(ctx context.Context, row *writehistory.Write) (err error) {
	if w.session == nil {
		if w.session, err = connectFrom(ctx, w.open, w.from); err != nil {
			w.session = nil
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// What is measured is the write, not what came before it.
	row.Sent = w.history.Now()
	row.Server, row.Timeline, err = w.session.insert(ctx, w.client, row.Number)
	return err
}

// tryConnections opens new connections that take writes until the context ends.
func (w *rowWriter) tryConnections(ctx context.Context) {
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

func (w *rowWriter) tryConnection(ctx context.Context) error {
	w.turn.Lock()
	from, open := w.from, w.open
	w.turn.Unlock()
	session, err := connectFrom(ctx, open, from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	defer session.close(ctx)
	return session.checkWritable(ctx)
}

// pause holds the client between two writes until the function that it returns is
// called.
func (w *rowWriter) pause() (resume func()) {
	w.turn.Lock()
	return sync.OnceFunc(w.turn.Unlock)
}

// countWrites are the acknowledged and the failed writes since a time.
func (w *rowWriter) countWrites(since time.Duration) (acknowledged, failed int) {
	for _, row := range w.history.Writes(since, w.client) {
		if row.Acknowledged {
			acknowledged++
		} else {
			failed++
		}
	}
	return acknowledged, failed
}

// countSent are the acknowledged writes that were sent since a time.
func (w *rowWriter) countSent(since time.Duration) (acknowledged int) {
	for _, row := range w.history.Writes(since, w.client) {
		if row.Acknowledged && row.Sent >= since {
			acknowledged++
		}
	}
	return acknowledged
}

// goesOn waits until writes that are sent from now on are acknowledged.
func (w *rowWriter) goesOn(t *testing.T) {
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
func (w *rowWriter) writesOn(t *testing.T, timeline int64) {
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

func (w *rowWriter) readError() error {
	w.turn.Lock()
	defer w.turn.Unlock()
	if w.lastError == nil {
		return errors.New("none")
	}
	return w.lastError
}
