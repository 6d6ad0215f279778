package health

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// A database whose first process stands still is seen, and said to be hung.
func TestHealth(t *testing.T) {
	h := NewHealth("PostgreSQL", slog.New(slog.DiscardHandler))
	if serving, _ := h.Serving(); !serving {
		t.Error("a database that was not asked yet does not serve")
	}
	h.recordAnswers(Answers{silent: silentLimit}, false)
	if serving, message := h.Serving(); serving || !strings.Contains(message, "started again") {
		t.Errorf("%v %q", serving, message)
	}
	h.recordAnswers(Answers{silent: silentLimit}, true)
	if serving, message := h.Serving(); serving || !strings.Contains(message, "disk") || strings.Contains(message, "started again") {
		t.Errorf("%v %q", serving, message)
	}
	h.recordAnswers(Answers{silent: silentLimit}, false)
	for err, want := range map[error]string{
		context.DeadlineExceeded: "accepts no new connection", fmt.Errorf("%w: %w", ErrUnanswered, context.DeadlineExceeded): "answers no query",
	} {
		h.recordSymptom(err)
		h.recordSymptom(nil)
		if _, message := h.Serving(); !strings.Contains(message, want) || !strings.Contains(h.HungError().Error(), want) {
			t.Errorf("after %v: %q, %v", err, message, h.HungError())
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	lock, err := volumelock.LockVolume(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	asked := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.Follow(ctx, lock, func(context.Context) error { asked <- struct{}{}; return ErrUnanswered })
	}()
	<-asked
	agenttest.WaitUntil(t, func() bool { serving, _ := h.Serving(); return serving })
	agenttest.WaitUntil(t, func() bool { return strings.Contains(h.HungError().Error(), ErrUnanswered.Error()) })
	stop()
	<-ended
}
