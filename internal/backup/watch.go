package backup

import (
	"context"
	"fmt"
	"io"
	"time"
)

// silence is how long a database that is copied may give nothing.
const silence = 10 * time.Minute

// Watch ends a copy whose database gives nothing any more: the context is done
// then, with the cause. The time that the writer takes does not count. What it
// answers must be stopped.
func Watch(ctx context.Context, to io.Writer) (watched context.Context, w io.Writer, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the database has given nothing for %s", silence)) })
	return watched, &awake{to, timer}, func() {
		timer.Stop()
		cancel(nil)
	}
}

type awake struct {
	to    io.Writer
	timer *time.Timer
}

// Write implements io.Writer.
func (a *awake) Write(p []byte) (int, error) {
	a.timer.Stop()
	defer a.timer.Reset(silence)
	return a.to.Write(p)
}
