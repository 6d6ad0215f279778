//go:build postgres

package postgres

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// follow makes a replica of a primary.
func (s *server) follow(t *testing.T) *server {
	t.Helper()
	r := &server{bin: s.bin, data: filepath.Join(t.TempDir(), "data"), socket: s.socket, port: freePort(t), identity: s.identity}
	s.run(t, "pg_basebackup", "--host="+s.socket, "--port="+s.port, "--username=postgres", "--pgdata="+r.data, "--write-recovery-conf", "--checkpoint=fast")
	r.start(t, r.data)
	return r
}

func (s *server) position(t *testing.T) string {
	t.Helper()
	return s.query(t, "select timeline_id || ':' || pg_current_wal_flush_lsn() from pg_control_checkpoint()")
}

// copied is a copy that was verified.
func (s *server) copied(t *testing.T, source *Source) (*bytes.Buffer, backup.Facts) {
	t.Helper()
	var stream bytes.Buffer
	if _, err := source.CopyMember(t.Context(), s.member(), &stream); err != nil {
		t.Fatal(err)
	}
	found, err := source.VerifyCopy(t.Context(), bytes.NewReader(stream.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return &stream, found
}

// A replica's copy has all that its primary had when it was planned, down to the
// last record, and so has that of the next timeline.
func TestRealStandby(t *testing.T) {
	s := startPostgres(t)
	r := s.follow(t)
	s.query(t, "create table rows as select n from generate_series(1, 1000) n")
	for round := range 3 { // also where nothing is new but a record of no page
		s.query(t, "insert into rows values (0)")
		for r.query(t, "select (pg_last_wal_replay_lsn() >= '"+s.query(t, "select pg_current_wal_lsn()::text")+"')::text") != "true" {
			time.Sleep(10 * time.Millisecond)
		}
		r.query(t, "checkpoint") // no page of the replica waits to be written
		s.query(t, "checkpoint")
		s.query(t, "select pg_create_restore_point('a') || ' ' || pg_switch_wal()")
		source := r.source(t)
		source.AtLeast, source.System = s.position(t), s.query(t, "select system_identifier::text from pg_control_system()")
		_, found := r.copied(t, source)
		if !strings.HasPrefix(found.End, "1:") {
			t.Errorf("round %d: %+v, at least %s", round, found, source.AtLeast)
		}
	}
	s.run(t, "pg_ctl", "--pgdata="+s.data, "--mode=immediate", "stop")
	r.query(t, "select pg_promote()::text")
	r.query(t, "insert into rows values (-1)")
	r.query(t, "checkpoint")
	source := r.source(t)
	source.AtLeast = r.position(t)
	stream, found := r.copied(t, source)
	if !strings.HasPrefix(found.End, "2:") {
		t.Errorf("%+v", found)
	}
	r.run(t, "pg_ctl", "--pgdata="+r.data, "--mode=immediate", "stop")
	restored := filepath.Join(t.TempDir(), "restored")
	unpack(t, stream, restored)
	r.run(t, "pg_verifybackup", restored)
	r.start(t, restored)
	if rows := r.query(t, "select count(*)::text from rows"); rows != "1004" {
		t.Errorf("%s rows are restored", rows)
	}
}

// A replica that is cut off is waited for, and not copied; a database of another
// cluster is not either.
func TestRealUnfit(t *testing.T) {
	s := startPostgres(t)
	r := s.follow(t)
	r.query(t, "alter system set primary_conninfo = ''")
	r.query(t, "select pg_reload_conf()::text")
	for r.query(t, "select count(*)::text from pg_stat_wal_receiver") != "0" {
		time.Sleep(50 * time.Millisecond)
	}
	s.query(t, "create table rows as select 1 as n")
	source := r.source(t)
	source.AtLeast, source.Patience = s.position(t), store.Patience{First: time.Millisecond, Longest: time.Millisecond, Total: time.Second}
	var stream bytes.Buffer
	if _, err := source.CopyMember(t.Context(), r.member(), &stream); err == nil || backup.InVain(err) || stream.Len() > 0 || !strings.Contains(err.Error(), "when the copy was planned") {
		t.Errorf("%d bytes, %v", stream.Len(), err)
	}
	if _, err := source.CopyMember(t.Context(), s.member(), io.Discard); err != nil {
		t.Error(err)
	}
	source.System = "7300000000000000001"
	if _, err := source.CopyMember(t.Context(), s.member(), &stream); !backup.InVain(err) || stream.Len() > 0 {
		t.Errorf("%d bytes, %v", stream.Len(), err)
	}
}

// One bit of the WAL that is another than it was is found.
func TestRealWALThatRots(t *testing.T) {
	s := startPostgres(t)
	source := s.source(t)
	stream, found := s.copied(t, source)
	dir := filepath.Join(t.TempDir(), "copy")
	unpack(t, stream, dir)
	start, err := readPosition(found.Start)
	if err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "pg_wal", "0*"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%v, %v", segments, err)
	}
	files := map[string][]byte{}
	err = filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files[strings.TrimPrefix(path, dir+"/")], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.VerifyCopy(t.Context(), pack(t, files)); err != nil {
		t.Fatal(err)
	}
	// The first byte of the record's data. From 17 on a backup begins with a record of 30
	// bytes: what follows it up to the next one is padding, which has no checksum.
	files["pg_wal/"+filepath.Base(segments[0])][start.at%(16<<20)+26] ^= 1
	if _, err := source.VerifyCopy(t.Context(), pack(t, files)); !backup.InVain(err) || !strings.Contains(err.Error(), "pg_waldump") {
		t.Error(err)
	}
}
