package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A postmaster that cannot fork has answered; one that accepts nothing has not.
func TestConnectionCheck(t *testing.T) {
	for name, c := range map[string]struct {
		serve    func(net.Conn)
		answered bool
	}{
		"it cannot fork": {func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte("Ecould not fork new process for connection: Resource temporarily unavailable\n\x00"))
		}, true},
		"it refuses": {func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1024))
			body := "SFATAL\x00VFATAL\x00C53300\x00Mtoo many clients\x00\x00"
			_, _ = conn.Write(append([]byte{'E', 0, 0, 0, byte(len(body) + 4)}, body...))
		}, true},
		"it accepts nothing":          {nil, false},
		"it closes without an answer": {func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1024)) }, false},
		"it speaks nonsense":          {func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1024)); _, _ = conn.Write([]byte("R\x00\x00")) }, false},
	} {
		dir, port := t.TempDir(), 5432
		listener, err := net.Listen("unix", filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", port)))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for c.serve != nil {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				c.serve(conn)
				_ = conn.Close()
			}
		}()
		limit := 10 * time.Second
		if c.serve == nil {
			limit = 50 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		if err := NewConnectionCheck(ctx, dir, port).Check(ctx); (err == nil) != c.answered {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		_ = listener.Close()
		<-ended
	}
	if !IsAnswer(fmt.Errorf("write: %w", syscall.EPIPE)) || IsAnswer(errors.New("dial")) || IsAnswer(nil) {
		t.Error("what is an answer")
	}
}
