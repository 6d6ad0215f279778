package backup

import (
	"context"
	"io"
	"time"

	"golang.org/x/time/rate"
)

// pace lets no more than so many bytes a second pass, over any time; the first
// second's at once.
type pace struct {
	limiter *rate.Limiter
	now     func() time.Time
	sleep   func(ctx context.Context, d time.Duration) error
}

// newPace is nil, which everything passes, where there is no limit.
func newPace(bytesPerSecond int64) *pace {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &pace{limiter: rate.NewLimiter(rate.Limit(bytesPerSecond), int(bytesPerSecond)), now: time.Now, sleep: sleepFor}
}

func sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// waitFor waits until so many bytes may pass.
func (p *pace) waitFor(ctx context.Context, bytes int) error {
	for bytes > 0 {
		n := min(bytes, p.limiter.Burst())
		bytes -= n
		now := p.now()
		if wait := p.limiter.ReserveN(now, n).DelayFrom(now); wait > 0 {
			if err := p.sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
	return nil
}

// paceWriter has what is written to another one wait for its turn.
func (p *pace) paceWriter(ctx context.Context, to io.Writer) io.Writer {
	if p == nil {
		return to
	}
	return &pacedWriter{ctx, p, to}
}

type pacedWriter struct {
	ctx  context.Context
	pace *pace
	to   io.Writer
}

// Write implements io.Writer.
func (w *pacedWriter) Write(data []byte) (int, error) {
	if err := w.pace.waitFor(w.ctx, len(data)); err != nil {
		return 0, err
	}
	return w.to.Write(data)
}

// PaceReader reads no more than so many bytes a second; 0 for no limit.
func PaceReader(ctx context.Context, from io.Reader, bytesPerSecond int64) io.Reader {
	return newPace(bytesPerSecond).paceReader(ctx, from)
}

func (p *pace) paceReader(ctx context.Context, from io.Reader) io.Reader {
	if p == nil {
		return from
	}
	return &pacedReader{ctx, p, from}
}

type pacedReader struct {
	ctx  context.Context
	pace *pace
	from io.Reader
}

// Read implements io.Reader. The end of the data waits for nothing.
func (r *pacedReader) Read(data []byte) (int, error) {
	n, err := r.from.Read(data)
	if late := r.pace.waitFor(r.ctx, n); late != nil && err == nil {
		err = late
	}
	return n, err
}
