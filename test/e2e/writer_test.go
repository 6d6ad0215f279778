//go:build e2e || soak

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// writer is an application in a pod of its own that writes one number after the
// other and reports which were acknowledged. One that was not is not tried again:
// it may be there or not.
type writer struct {
	t      *testing.T
	c      *subject
	app    *clientPod
	done   chan struct{}
	report *writerReport
}

// writerReport is what the application reported.
type writerReport struct {
	mu sync.Mutex
	// acked are the numbers that were acknowledged.
	acked map[int]bool
	// spans of the writes, of a database that restores to a time.
	spans map[int]span
	stale []string
	// newest is when the last one was acknowledged, and gap the longest time
	// without one.
	newest, gap time.Duration
}

// span of a write by the database's own clock: if it was committed, then in
// between. Without the second time it was not acknowledged.
type span struct{ begun, ended time.Time }

// hearLine reads one line: "ack NUMBER MILLISECONDS", by the application's own clock,
// "begun" or "ended NUMBER MICROSECONDS", by the database's, or "stale" and what
// it read that was older than what it had written.
func (s *writerReport) hearLine(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var word string
	var number int
	var clock int64
	_, err := fmt.Sscanf(line, "%s %d %d", &word, &number, &clock)
	switch {
	case err == nil && word == "begun":
		s.spans[number] = span{begun: time.UnixMicro(clock)}
	case err == nil && word == "ended":
		s.spans[number] = span{s.spans[number].begun, time.UnixMicro(clock)}
	case err == nil && word == "ack":
		at := time.Duration(clock) * time.Millisecond
		if len(s.acked) > 0 {
			s.gap = max(s.gap, at-s.newest)
		}
		s.acked[number], s.newest = true, at
	case strings.HasPrefix(line, "stale"):
		s.stale = append(s.stale, line)
	}
}

// startWriter writes until stop, or the test's end.
func (c *subject) startWriter() *writer {
	c.t.Helper()
	w := &writer{t: c.t, c: c, app: newClientOf(c.t, c.kind.applicationImage(c.t)), done: make(chan struct{}), report: &writerReport{acked: map[int]bool{}, spans: map[int]span{}}}
	command := c.kind.applicationCommand(c, w.app)
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	go func() {
		in.CloseWithError(streamCommand(ctx, w.app.namespace, w.app.name, nil, in, io.Discard, command...))
	}()
	go func() {
		defer close(w.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.report.hearLine(lines.Text())
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-w.done
	})
	w.goesOn()
	return w
}

// withTest is the same writer, for a part of a test.
func (w *writer) withTest(t *testing.T) *writer {
	part := *w
	part.t, part.c = t, w.c.withTest(t)
	return &part
}

func (w *writer) countWrites() int {
	w.report.mu.Lock()
	defer w.report.mu.Unlock()
	return len(w.report.acked)
}

// takeGap is the longest time without an acknowledgement since the last call.
func (w *writer) takeGap() time.Duration {
	w.report.mu.Lock()
	defer w.report.mu.Unlock()
	gap := w.report.gap
	w.report.gap = 0
	return gap
}

// goesOn waits until more was acknowledged: writes are served now.
func (w *writer) goesOn() {
	w.t.Helper()
	before := w.countWrites()
	eventually(w.t, serviceTimeout, "writes go on", func(context.Context) error {
		if now := w.countWrites(); now < before+3 {
			return fmt.Errorf("%d acknowledged after %d", now, before)
		}
		return nil
	})
}

// until is the file in the application's pod whose coming ends the writing.
const until = "/tmp/stop"

// stopWriting ends the writing. Everything that was acknowledged must be there.
func (w *writer) stopWriting() {
	w.t.Helper()
	w.app.writeFile(w.t, until, "stop")
	eventually(w.t, execTimeout, "the writer ends", func(context.Context) error {
		select {
		case <-w.done:
			return nil
		default:
			return errors.New("it still runs")
		}
	})
	w.t.Logf("%d writes acknowledged", len(w.report.acked))
	if len(w.report.stale) > 0 {
		w.t.Errorf("reads were older than acknowledged writes: %v", w.report.stale)
	}
	w.checkMember(0)
}

// readNumbers reads numbers with blanks between them.
func readNumbers(t *testing.T, text string) (numbers []int) {
	t.Helper()
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(field)
		must(t, err, "read a number")
		numbers = append(numbers, n)
	}
	return numbers
}

// checkMember says which acknowledged writes a member lacks, once they have ended.
func (w *writer) checkMember(ordinal int) {
	w.t.Helper()
	lost := maps.Clone(w.report.acked)
	for _, n := range w.c.kind.writtenNumbers(w.c, ordinal) {
		delete(lost, n)
	}
	if len(lost) > 0 || len(w.report.acked) == 0 {
		w.t.Errorf("%s lost %d of %d acknowledged writes: %v", w.c.podName(ordinal), len(lost), len(w.report.acked), slices.Sorted(maps.Keys(lost)))
	}
}
