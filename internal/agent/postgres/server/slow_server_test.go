package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// slowServer accepts connections, and answers none before it is let.
type slowServer struct {
	dir      string
	accepted chan struct{} // once for each connection
	let      chan struct{}
}

const slowPort = 5432

func newSlowServer(t *testing.T) *slowServer {
	t.Helper()
	s := &slowServer{dir: t.TempDir(), accepted: make(chan struct{}, 100), let: make(chan struct{})}
	listener, err := net.Listen("unix", filepath.Join(s.dir, fmt.Sprintf(".s.PGSQL.%d", slowPort)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.accepted <- struct{}{}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *slowServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	<-s.let
	backend := pgproto3.NewBackend(conn, conn)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if backend.Flush() == nil {
		_, _ = backend.Receive() // until it is closed
	}
}

// Each connection costs a server a process: one that starts them slowly gets no second
// one from who waits for the first no longer.
func TestSlowServerIsAskedOnce(t *testing.T) {
	for name, newAsk := range map[string]func(*testing.T, *slowServer) func(context.Context) error{
		"a session": func(t *testing.T, s *slowServer) func(context.Context) error {
			t.Helper()
			session := NewSession(s.dir, slowPort, "test")
			t.Cleanup(session.Close)
			return func(ctx context.Context) error {
				return session.Do(ctx, func(context.Context, *pgx.Conn) error { return nil })
			}
		},
		"a check": func(t *testing.T, s *slowServer) func(context.Context) error {
			t.Helper()
			return NewConnectionCheck(t.Context(), s.dir, slowPort).Check
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSlowServer(t)
			ask := newAsk(t, s)
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if err := ask(ctx); err == nil {
					t.Fatal("the server answered")
				}
				cancel()
			}
			close(s.let)
			if err := ask(t.Context()); err != nil {
				t.Fatal(err)
			}
			if connections := len(s.accepted); connections != 1 {
				t.Errorf("%d connections for one answer", connections)
			}
		})
	}
}

// A session that is closed while its connection is being opened leaves none.
func TestSessionClosedWhileItOpens(t *testing.T) {
	s := newSlowServer(t)
	session := NewSession(s.dir, slowPort, "test")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-s.accepted; cancel() }()
	if err := session.Do(ctx, func(context.Context, *pgx.Conn) error { return nil }); err == nil {
		t.Fatal("the server answered")
	}
	session.Close()
	if err := session.Do(t.Context(), func(context.Context, *pgx.Conn) error { return nil }); err == nil {
		t.Error("a session that was closed opened a connection")
	}
}
