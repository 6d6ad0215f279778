package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"
)

// clocked is a pace whose waiting takes no time, and how long it was.
func clocked(bytesPerSecond int64) (p *pace, waited func() time.Duration) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := begin
	p = newPace(bytesPerSecond)
	p.now = func() time.Time { return now }
	p.sleep = func(ctx context.Context, d time.Duration) error { now = now.Add(d); return context.Cause(ctx) }
	return p, func() time.Duration { return now.Sub(begin).Round(time.Millisecond) }
}

// Bytes pass at their pace, in whatever pieces they come, but for those of the
// first second.
func TestPace(t *testing.T) {
	const perSecond = 64 << 10
	content := bytes.Repeat([]byte("holdfast"), 10*perSecond/8)
	ways := map[string]func(p *pace, to io.Writer) error{
		"written at once": func(p *pace, to io.Writer) error { _, err := p.paceWriter(t.Context(), to).Write(content); return err },
		"written in pieces": func(p *pace, to io.Writer) error {
			_, err := io.CopyBuffer(p.paceWriter(t.Context(), to), struct{ io.Reader }{bytes.NewReader(content)}, make([]byte, 999))
			return err
		},
		"read at once": func(p *pace, to io.Writer) error {
			_, err := io.CopyBuffer(to, p.paceReader(t.Context(), bytes.NewReader(content)), make([]byte, len(content)))
			return err
		},
		"read in small parts": func(p *pace, to io.Writer) error {
			_, err := io.Copy(to, p.paceReader(t.Context(), iotest.HalfReader(bytes.NewReader(content))))
			return err
		},
	}
	for name, way := range ways {
		p, waited := clocked(perSecond)
		var got bytes.Buffer
		if err := way(p, struct{ io.Writer }{&got}); err != nil || !bytes.Equal(got.Bytes(), content) {
			t.Errorf("%s: %d bytes, %v", name, got.Len(), err)
		}
		if waited() != 9*time.Second {
			t.Errorf("%s: waited for %s", name, waited())
		}
	}
}

func TestNoPace(t *testing.T) {
	from, to := bytes.NewReader(nil), &bytes.Buffer{}
	if PaceReader(t.Context(), from, 0) != io.Reader(from) || newPace(0).paceWriter(t.Context(), to) != io.Writer(to) {
		t.Error("something is in the way")
	}
}

// A copy that waits is asked to stop, and the error is why.
func TestPaceIsLeft(t *testing.T) {
	why := errors.New("it is not needed any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	p := newPace(1)
	if n, err := p.paceWriter(ctx, io.Discard).Write([]byte("ab")); n != 0 || !errors.Is(err, why) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if _, err := io.Copy(io.Discard, newPace(1).paceReader(ctx, bytes.NewReader([]byte("ab")))); !errors.Is(err, why) {
		t.Error(err)
	}
}

// A backup is read at its pace, and read back at it.
func TestTakeKeepsPace(t *testing.T) {
	heard := &ear{}
	taker := attempt(t, t.TempDir(), "pod-a", &text{lines: 50000}, heard)
	var waited func() time.Duration
	taker.pace, waited = clocked(64 << 10)
	if err := taker.TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	seconds := float64(2*heard.last.Result.DataSize.Value())/(64<<10) - 1
	if want := time.Duration(seconds * float64(time.Second)).Round(time.Millisecond); (waited() - want).Abs() > time.Millisecond {
		t.Errorf("waited for %s, want %s", waited(), want)
	}
	again := attempt(t, t.TempDir(), "pod-b", &text{lines: 5}, &ear{})
	again.Task.Bandwidth = 1 << 20
	if err := again.TakeBackup(t.Context()); err != nil || again.pace == nil || again.pace.limiter.Burst() != 1<<20 {
		t.Errorf("%+v, %v", again.pace, err)
	}
}
