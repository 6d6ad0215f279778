package postgres

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/backup"
)

// What a program has written when it ends is taken in full, however slowly.
func TestStreamThatIsTakenSlowly(t *testing.T) {
	defer func(is time.Duration) { lenience = is }(lenience)
	lenience = 50 * time.Millisecond
	slow := &slowWriter{pause: 10 * lenience}
	if err := (&Source{}).streamOutput(t.Context(), exec.Command("head", "-c", "60000", "/dev/zero"), slow); err != nil || slow.n != 60000 {
		t.Errorf("%d bytes, %v", slow.n, err)
	}
}

type slowWriter struct {
	pause time.Duration
	n     int
}

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(w.pause)
	w.pause, w.n = 0, w.n+len(p)
	return len(p), nil
}

// A program is asked to end when its copy is, and why is what counts.
func TestStreamThatIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	end := errors.New("asked to stop")
	err := (&Source{}).streamOutput(ctx, exec.Command("cat", "/dev/zero"), writer(func(p []byte) (int, error) { cancel(end); return len(p), nil }))
	if !errors.Is(err, end) {
		t.Error(err)
	}
}

// What a member says again the next time is another member's to do.
func TestStreamThatFails(t *testing.T) {
	for says, vain := range map[string]bool{"checksum error occurred": true, "can only write single tablespace to stdout": true, "connection to server was lost": false} {
		err := (&Source{}).streamOutput(t.Context(), exec.Command("sh", "-c", "echo '"+says+"' >&2; exit 1"), io.Discard)
		if backup.InVain(err) != vain || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
