package postgres

import (
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// positionServer answers each statement with 777, as soon as it is let.
type positionServer struct {
	dir                     string
	let                     chan struct{}
	connections, statements atomic.Int32
}

func newPositionServer(t *testing.T) *positionServer {
	t.Helper()
	s := &positionServer{dir: t.TempDir(), let: make(chan struct{})}
	listener, err := net.Listen("unix", filepath.Join(s.dir, ".s.PGSQL.5432"))
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
			s.connections.Add(1)
			go s.serve(conn)
		}
	}()
	return s
}

func (s *positionServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	backend := pgproto3.NewBackend(conn, conn)
	if _, err := backend.ReceiveStartupMessage(); err != nil {
		return
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for backend.Flush() == nil {
		message, err := backend.Receive()
		if err != nil {
			return
		}
		if _, is := message.(*pgproto3.Sync); !is {
			continue
		}
		s.statements.Add(1)
		<-s.let
		backend.Send(&pgproto3.ParseComplete{})
		backend.Send(&pgproto3.BindComplete{})
		backend.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("position"), DataTypeOID: pgtype.Int8OID, DataTypeSize: 8, TypeModifier: -1}}})
		backend.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("777")}})
		backend.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
}

// newPositionReader is that of a primary whose position was 5.
func newPositionReader(t *testing.T, dir string) *positionReader {
	t.Helper()
	r := &positionReader{
		store:   statusserver.NewStore(agentapi.Status{Role: v1alpha1.RolePrimary, Serving: true, Position: 5, Engine: postgresapi.ReplicationStatus{Timeline: 1}}),
		session: server.NewSession(dir, 5432, "test"),
	}
	t.Cleanup(r.session.Close)
	return r
}

func (r *positionReader) checkPosition(t *testing.T, position uint64, old bool) {
	t.Helper()
	status := r.store.Get()
	if isOld := agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&status).PositionOld; status.Position != position || isOld != old {
		t.Errorf("the position is %d, old %t; want %d, %t", status.Position, isOld, position, old)
	}
}

// awaitReading waits for the statement that is under way.
func (r *positionReader) awaitReading() {
	r.mu.Lock()
	reading := r.reading
	r.mu.Unlock()
	if reading != nil {
		<-reading.ended
	}
}

func TestPositionIsRead(t *testing.T) {
	s := newPositionServer(t)
	close(s.let)
	r := newPositionReader(t, s.dir)
	r.refreshPosition(t.Context())
	r.checkPosition(t, 777, false)
	// Another question right after that needs no statement.
	if r.refreshPosition(t.Context()); s.statements.Load() != 1 {
		t.Errorf("%d statements", s.statements.Load())
	}
}

// A slow database is asked once, however many clients of the agent ask, and what it
// answers too late is no position of now.
func TestPositionOfASlowDatabase(t *testing.T) {
	s := newPositionServer(t)
	r := newPositionReader(t, s.dir)
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() { r.refreshPosition(t.Context()) })
	}
	asking.Wait()
	r.checkPosition(t, 5, true)
	time.Sleep(10 * time.Millisecond)
	close(s.let)
	r.awaitReading()
	r.checkPosition(t, 5, true)
	if connections, statements := s.connections.Load(), s.statements.Load(); connections != 1 || statements != 1 {
		t.Errorf("%d connections and %d statements for one position", connections, statements)
	}
}

// What was asked of a primary is no position of the replica that it has become.
func TestPositionOfAFormerPrimary(t *testing.T) {
	s := newPositionServer(t)
	r := newPositionReader(t, s.dir)
	r.beginReading(t.Context(), true)
	r.store.Update(func(s *agentapi.Status) { s.Role = v1alpha1.RoleReplica })
	close(s.let)
	r.awaitReading()
	r.checkPosition(t, 5, false)
}

// What was read of a replica is no position of the primary that it has become.
func TestPositionOfANewPrimary(t *testing.T) {
	asReplica := &positionReading{ended: make(chan struct{})}
	r := newPositionReader(t, t.TempDir()) // no server answers
	r.reading = asReplica
	go func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reading = nil
		close(asReplica.ended)
	}()
	r.refreshPosition(t.Context())
	r.checkPosition(t, 5, true)
}
