package process

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// writes records each write, and how many of them end within a line.
type writes struct {
	bytes.Buffer
	all, within int
}

func (w *writes) Write(data []byte) (int, error) {
	w.all++
	if !bytes.HasSuffix(data, []byte("\n")) {
		w.within++
	}
	return w.Buffer.Write(data)
}

// pieces is read as a pipe is: in pieces of any length.
type pieces struct {
	rest   []byte
	random *rand.Rand
}

func (p *pieces) Read(into []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(into, p.rest[:1+p.random.IntN(len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func (*pieces) Close() error { return nil }

// The text log is written as it came, byte for byte, each line up to 1 MiB in one write.
// Each line is heard once, and not more of it than fits.
func TestPassOn(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a test's, which is to be repeatable
	lengths := []int{0, 1, 100, longestHeard - 1, longestHeard, longestHeard + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 300 << 10, 0, 7,
		longestWritten - 1, longestWritten, longestWritten + 1, 3*longestWritten + 17, 12}
	for _, last := range []string{"", "no end"} {
		var text bytes.Buffer
		var want []string
		for i, n := range lengths {
			line := strings.Repeat(string(rune('a'+i)), n)
			text.WriteString(line + "\n")
			want = append(want, line[:min(n, longestHeard)])
		}
		if text.WriteString(last); last != "" {
			want = append(want, last)
		}
		all := bytes.Clone(text.Bytes())
		var out writes
		var got []string
		passOn(&pieces{text.Bytes(), random}, &out, func(line string) { got = append(got, line) })
		if !bytes.Equal(out.Bytes(), all) {
			t.Errorf("%d bytes were written of %d, or others", out.Len(), len(all))
		}
		if len(got) != len(want) {
			t.Fatalf("%d lines were heard of %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("line %d: %d bytes were heard, not %d", i, len(got[i]), len(want[i]))
			}
		}
		// Lines that are longer than what is written as a whole take five writes more, which
		// end within one, as the last line may.
		if most := 5 + min(len(last), 1); out.within > most || out.all > len(want)+5 {
			t.Errorf("%d writes for %d lines, %d of them end within a line, want at most %d", out.all, len(want), out.within, most)
		}
	}
}

// A line of any length takes no more memory than one that is written as a whole.
func TestPassOnIsBounded(t *testing.T) {
	endless := io.LimitReader(zeros{}, 256<<20)
	var largest, total int
	passOn(io.NopCloser(endless), writerFunc(func(data []byte) { largest, total = max(largest, len(data)), total+len(data) }), func(string) {})
	if total != 256<<20 || largest > longestWritten+64<<10 {
		t.Errorf("%d bytes were written, %d at once", total, largest)
	}
}

// stream is a pipe that holds whatever is written into it.
type stream struct {
	mu    sync.Mutex
	some  sync.Cond
	held  bytes.Buffer
	ended bool
}

func (s *stream) Read(into []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held.Len() == 0 && !s.ended {
		s.some.Wait()
	}
	return s.held.Read(into)
}

func (s *stream) put(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.WriteString(text)
	s.ended = text == ""
	s.some.Broadcast()
}

func (*stream) Close() error { return nil }

// A line that comes alone is passed on at once. Those that come fast are passed on together,
// and not later than a millisecond after they came.
func TestLinesGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stream{}
		s.some.L = &s.mu
		var out writes
		done := make(chan struct{})
		go func() {
			defer close(done)
			passOn(&gathering{pipe: s}, &out, func(string) {})
		}()
		for i := range 3 {
			time.Sleep(time.Second)
			s.put("alone\n")
			synctest.Wait()
			if out.all != i+1 {
				t.Errorf("%d writes after %d lines that came alone", out.all, i+1)
			}
		}
		time.Sleep(time.Second)
		for range 1000 {
			s.put("one of many\n")
			time.Sleep(10 * time.Microsecond)
		}
		time.Sleep(gatherTime)
		synctest.Wait()
		if out.Len() != 3*len("alone\n")+1000*len("one of many\n") {
			t.Errorf("%d bytes were written", out.Len())
		}
		// A thousand lines came in ten milliseconds.
		if together := out.all - 3; together > 12 {
			t.Errorf("%d writes for a thousand lines", together)
		}
		s.put("")
		<-done
	})
}

// A server that fills a pipe faster than it is read is not held up by lines that gather.
func TestFullReadsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		passOn(&gathering{pipe: io.NopCloser(io.LimitReader(zeros{}, 16<<20))}, io.Discard, func(string) {})
		if took := time.Since(began); took > 2*gatherTime {
			t.Errorf("16 MiB took %s", took)
		}
	})
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { return len(into), nil }

type writerFunc func([]byte)

func (f writerFunc) Write(data []byte) (int, error) { f(data); return len(data), nil }

func BenchmarkPassOn(b *testing.B) {
	line := strings.Repeat("x", 150) + "\n"
	text := strings.Repeat(line, 10000)
	heard := 0
	for b.Loop() {
		passOn(io.NopCloser(strings.NewReader(text)), io.Discard, func(string) { heard++ })
	}
	b.ReportMetric(float64(heard)/b.Elapsed().Seconds(), "lines/s")
}
