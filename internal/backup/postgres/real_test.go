//go:build postgres

// These tests copy the PostgreSQL of this machine. PostgreSQL refuses to run as
// root:
//
//	go test -c -tags postgres -o /tmp/copy.test ./internal/backup/postgres
//	setpriv --reuid postgres --clear-groups /tmp/copy.test -test.run Real
package postgres

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	programs "github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/pki"
)

type server struct {
	bin, data, socket, port string
	identity                backup.Identity
}

// startPostgres runs a primary that lets members stream as Holdfast's do.
func startPostgres(t *testing.T) *server {
	t.Helper()
	bin, err := programs.FindPrograms()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{bin: bin, data: filepath.Join(t.TempDir(), "data"), port: freePort(t)}
	socket, err := os.MkdirTemp("/tmp", "hf") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(socket) })
	s.socket = socket
	s.run(t, "initdb", "--pgdata="+s.data, "--username=postgres", "--auth=trust", "--data-checksums", "--locale=C")
	s.certify(t)
	s.write(t, "pg_hba.conf", "local all all trust\nlocal replication postgres trust\nhostssl replication holdfast_replication all cert map=m\n")
	s.write(t, "pg_ident.conf", "m "+agentapi.MemberName+" holdfast_replication\n")
	s.start(t, s.data)
	s.query(t, "create role holdfast_replication login replication")
	return s
}

func (s *server) certify(t *testing.T) {
	t.Helper()
	ca, err := pki.NewCA("test", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: agentapi.MemberName, DNSNames: []string{"localhost"}, Usage: pki.UsageServerAndClient}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.identity = backup.Identity{CertPEM: certPEM, KeyPEM: keyPEM, RootsPEM: ca.CertPEM}
	for name, data := range map[string][]byte{"server.crt": certPEM, "server.key": keyPEM, "ca.crt": ca.CertPEM} {
		s.write(t, name, string(data))
	}
}

func (s *server) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.data, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *server) run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(s.bin, program), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

// start a server on a data directory, until the test ends.
func (s *server) start(t *testing.T, data string) {
	t.Helper()
	settings := fmt.Sprintf("-c port=%s -c listen_addresses=localhost -c unix_socket_directories=%s -c ssl=on -c ssl_ca_file=ca.crt -c wal_level=replica -c fsync=off", s.port, s.socket)
	s.run(t, "pg_ctl", "--pgdata="+data, "--log="+filepath.Join(s.socket, "log"), "--wait", "--options="+settings, "start")
	t.Cleanup(func() {
		_ = exec.Command(filepath.Join(s.bin, "pg_ctl"), "--pgdata="+data, "--mode=immediate", "stop").Run()
	})
}

func (s *server) query(t *testing.T, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "host="+s.socket+" port="+s.port+" user=postgres dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) //nolint:errcheck // a test's own
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return answer
}

func (s *server) source(t *testing.T) *Source {
	t.Helper()
	if programs, err := backup.FindPostgres(programCopy, programWALDump); err != nil || programs != s.bin {
		t.Errorf("found %q, %v", programs, err)
	}
	return &Source{Identity: s.identity, Programs: s.bin, Label: "test's", Scratch: t.TempDir(), Patience: patience}
}

func (s *server) member() agentapi.BackupSource {
	return agentapi.BackupSource{Name: "a", Address: "localhost:" + s.port}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A copy that is made while rows are written is good to pg_verifybackup, too,
// starts by itself, and has every row that was there when it began.
func TestRealCopy(t *testing.T) {
	s := startPostgres(t)
	s.query(t, "create table rows as select n, repeat('x', 500) as text from generate_series(1, 20000) n")
	writing, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := pgx.Connect(context.Background(), "host="+s.socket+" port="+s.port+" user=postgres dbname=postgres")
		if err != nil {
			return
		}
		defer conn.Close(context.Background()) //nolint:errcheck // a test's own
		for n := 20001; writing.Err() == nil; n++ {
			_, _ = conn.Exec(context.Background(), "insert into rows values ($1, repeat('y', 2000))", n)
		}
	}()
	var stream bytes.Buffer
	facts, err := s.source(t).CopyMember(t.Context(), s.member(), &stream)
	stop()
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.source(t).VerifyCopy(t.Context(), bytes.NewReader(stream.Bytes()))
	if err != nil || facts.SystemIdentifier == "" || facts.Version == "" || !strings.HasPrefix(found.Start, "1:0/") || !strings.HasPrefix(found.End, "1:0/") {
		t.Fatalf("%+v, %+v, %v", facts, found, err)
	}
	if slots := s.query(t, "select count(*)::text from pg_replication_slots"); slots != "0" {
		t.Errorf("%s replication slots are left", slots)
	}
	s.run(t, "pg_ctl", "--pgdata="+s.data, "--mode=immediate", "stop")
	restored := filepath.Join(t.TempDir(), "restored")
	unpack(t, &stream, restored)
	s.run(t, "pg_verifybackup", restored)
	s.start(t, restored)
	if rows := s.query(t, "select count(*)::text from rows where n <= 20000"); rows != "20000" {
		t.Errorf("%s rows are restored", rows)
	}
}

func unpack(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o700)
		} else if err = os.MkdirAll(filepath.Dir(name), 0o700); err == nil {
			var data []byte
			if data, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(name, data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// A client that the server does not know gets nothing, and learns why.
func TestRealStranger(t *testing.T) {
	s := startPostgres(t)
	known := s.identity
	s.certify(t) // another CA, which the running server has not read
	s.identity.RootsPEM = known.RootsPEM
	if _, err := s.source(t).CopyMember(t.Context(), s.member(), io.Discard); err == nil || !strings.Contains(err.Error(), "reach PostgreSQL") {
		t.Error(err)
	}
}

// Where no reader takes the copy any more, the program ends.
func TestRealCopyThatIsCancelled(t *testing.T) {
	s := startPostgres(t)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.source(t).CopyMember(ctx, s.member(), writer(func([]byte) (int, error) { cancel(); return 0, io.ErrClosedPipe })); err == nil {
		t.Error("a copy that no reader took is whole")
	}
}
