package process

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// writes records each write, to tell whole lines from parts.
type writes struct {
	bytes.Buffer
	parts int
}

func (w *writes) Write(data []byte) (int, error) {
	w.parts++
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

// The text log is written as it came, byte for byte, each line in one write up to 1 MiB.
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
		// Lines that are longer than what is written as a whole take five writes more.
		if out.parts < len(want) || out.parts > len(want)+5 {
			t.Errorf("%d writes for %d lines", out.parts, len(want))
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
