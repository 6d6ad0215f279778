package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func TestPaced(t *testing.T) {
	failed := errors.New("failed")
	failures := 0
	for i, c := range []struct {
		err         error
		pause, took time.Duration
		want        time.Duration
	}{
		{failed, 0, 0, time.Second},
		{failed, time.Hour, 0, 2 * time.Second}, // what it asked for counts no more
		{failed, 0, longRun, 4 * time.Second},
		{failed, 0, 0, 8 * time.Second},
		{failed, 0, 0, pauseMost},
		{failed, 0, longRun + 1, time.Second},
		{failed, 0, 0, 2 * time.Second},
		{nil, 3 * time.Millisecond, 0, 3 * time.Millisecond},
		{failed, 0, 0, time.Second},
	} {
		var got time.Duration
		if failures, got = pacePause(failures, c.pause, c.err, c.took); got != c.want {
			t.Errorf("step %d: pause %s, want %s", i, got, c.want)
		}
	}
	if _, got := pacePause(1000, 0, failed, 0); got != pauseMost {
		t.Errorf("after a thousand failures: %s", got)
	}
}

// No step is done on a volume that another process has.
func TestLoopWaitsForTheVolume(t *testing.T) {
	dir := t.TempDir()
	other, err := volumelock.LockVolume(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(HostOptions{Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-0"}, Client: fake.NewClientset(), Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	steps, ended := make(chan func() error), make(chan struct{})
	go func() {
		defer close(ended)
		h.RunLoop(ctx, dir, func(context.Context) (time.Duration, error) {
			if h.Lock == nil {
				t.Error("a step without the lock")
			}
			return 0, (<-steps)()
		})
	}()
	until := func(state agentapi.State, message string) {
		t.Helper()
		for {
			status, changed := h.Store.Changed()
			if status.State == state && (message == "" || status.Message == message) {
				return
			}
			select {
			case <-changed:
			case <-time.After(30 * time.Second):
				t.Fatalf("not %s: %+v", state, status)
			}
		}
	}
	until(agentapi.StateHeld, "")
	if hold := h.Store.Get().Hold; hold != agentapi.HoldVolumeInUse {
		t.Errorf("held for %s", hold)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	steps <- func() error { return errors.New("no luck") }
	until(agentapi.StateFailed, "no luck")
	steps <- func() error { return nil }
	steps <- func() error { stop(); return errors.New("too late") }
	<-ended
	if status := h.Store.Get(); status.Message != "no luck" {
		t.Errorf("what failed because it was stopped is reported: %s", status.Message)
	}
}
