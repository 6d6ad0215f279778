//go:build postgres

package postgres

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// The tables of a shop, with what tables may have: rows stored beside them,
// columns that were dropped, parts, views, and triggers that want to be asked.
var shop = []string{
	"create table orders (id int primary key, gone int, note text)", "alter table orders drop column gone",
	"alter table orders alter note set storage external",
	"insert into orders select n, repeat(md5(n::text), 300) from generate_series(1, 500) n",
	"create table parts (n int) partition by range (n)", "create table parts_1 partition of parts for values from (0) to (100)",
	"create unlogged table fleeting as select 1 as n", "create materialized view later as select * from orders with no data",
	"create table \"Odd \"\"name\" ()", "create schema own", "create table own.fine as select n from generate_series(1, 100) n",
	"create function refuse() returns event_trigger language plpgsql as $$ begin raise 'not here'; end $$",
	"create event trigger refuse on ddl_command_end execute function refuse()",
	"create database hasty", "alter database hasty set statement_timeout = 1", // which no check minds
}

// A backup is restored on trial, and all of it read.
func TestRealDrill(t *testing.T) {
	for name, checksums := range map[string]bool{"with checksums": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			primary := startPrimary(t)
			if !checksums {
				primary.withoutChecksums(t)
			}
			for _, sql := range shop {
				primary.query(t, sql)
			}
			dir := t.TempDir()
			primary.backup(t, dir)
			r, _ := newRestorer(t, dir, t.TempDir())
			report, err := r.DrillBackup(t.Context())
			if err != nil || report.Backup != "nightly" {
				t.Fatal(err, report)
			}
			said := strings.Join(report.Checked, "; ")
			for _, want := range []string{"restored up to 1:", "every row of 4 tables in 3 databases", "amcheck found"} {
				if !strings.Contains(said, want) {
					t.Errorf("%q lacks %q", said, want)
				}
			}
			if strings.Contains(said, "every page has the checksum") != checksums {
				t.Errorf("%q", said)
			}
		})
	}
}

// What was set by ALTER SYSTEM on the source decides nothing: no client reaches
// the server of a drill, and it runs no programs of users.
func TestRealDrillWithTheSourcesSettings(t *testing.T) {
	primary := startPrimary(t)
	primary.query(t, shop[0])
	ran := filepath.Join(t.TempDir(), "ran")
	for _, setting := range []string{
		"port = 1", "listen_addresses = '*'", "unix_socket_directories = '" + t.TempDir() + "'", "archive_mode = on",
		"archive_command = 'touch " + ran + "'", "huge_pages = on", "ssl = on", "shared_preload_libraries = 'none_of_this_name'",
	} {
		primary.query(t, "alter system set "+setting)
	}
	dir := t.TempDir()
	primary.backup(t, dir)
	r, _ := newRestorer(t, dir, t.TempDir())
	if report, err := r.DrillBackup(t.Context()); err != nil {
		t.Fatal(err, report)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the archive_command of the source was run")
	}
}

// withoutChecksums starts the server without the checksums of pages.
func (s *server) withoutChecksums(t *testing.T) {
	t.Helper()
	s.run(t, "pg_ctl", "--pgdata="+s.data, "--wait", "--mode=fast", "stop")
	s.run(t, "pg_checksums", "--disable", "--pgdata="+s.data)
	s.start(t, "")
}

// What is wrong with the data is found, and named.
func TestRealDrillOfBadData(t *testing.T) {
	cases := map[string]struct {
		checksums bool
		of        string // the relation whose file is spoiled
		spoil     func(page []byte)
		says      string
	}{
		"a row beside its table, by its checksum": {true, "(select reltoastrelid from pg_class where relname = 'orders')", func(p []byte) { p[4000] ^= 1 }, "table public.orders"},
		"a table without checksums":               {false, "'orders'::regclass", func(p []byte) { copy(p, bytes.Repeat([]byte{0xff}, 200)) }, "table public.orders"},
		"a line pointer, for amcheck":             {false, "'own.fine'::regclass", func(p []byte) { p[24] |= 1 }, "table own.fine: block 0"},
		"an index without checksums":              {false, "'orders_pkey'::regclass", func(p []byte) { clear(p[8192-64 : 8192-16]) }, "index public.orders_pkey"},
		"an index, by its checksum":               {true, "'orders_pkey'::regclass", func(p []byte) { p[3000] ^= 1 }, "orders_pkey"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			primary := startPrimary(t)
			if !tc.checksums {
				primary.withoutChecksums(t)
			}
			for _, sql := range shop {
				primary.query(t, sql)
			}
			file := primary.query(t, "select pg_relation_filepath("+tc.of+")")
			dir := t.TempDir()
			primary.backup(t, dir)
			r, _ := newRestorer(t, dir, t.TempDir())
			r.Engine = &rotten{Engine: r.Engine.(*Engine), file: file, spoil: tc.spoil}
			report, err := r.DrillBackup(t.Context())
			if !backup.InVain(err) || !strings.Contains(report.Error, tc.says) {
				t.Errorf("%v; want %s", err, tc.says)
			}
		})
	}
}

// rotten changes the last page of a file after it was restored.
type rotten struct {
	*Engine
	file  string
	spoil func(page []byte)
}

func (r *rotten) CheckData(ctx context.Context, lock *volumelock.VolumeLock, data string) ([]string, error) {
	name := filepath.Join(data, r.file)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r.spoil(text[len(text)-8192:])
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return nil, err
	}
	return r.Engine.CheckData(ctx, lock, data)
}

// A pod that was killed while the database was read is followed by one that
// reads all of it.
func TestRealDrillAgain(t *testing.T) {
	primary := startPrimary(t)
	primary.query(t, "create table rows as select n from generate_series(1, 20000) n")
	dir, volume := t.TempDir(), t.TempDir()
	primary.backup(t, dir)
	r, _ := newRestorer(t, dir, volume)
	if err := r.RestoreVolume(t.Context()); err != nil {
		t.Fatal(err)
	}
	crashed := newServer(t)
	crashed.data = filepath.Join(volume, "pgdata")
	crashed.start(t, " -c ssl=off")
	crashed.query(t, "create table more as select n from generate_series(1, 20000) n")
	crashed.run(t, "pg_ctl", "--pgdata="+crashed.data, "--mode=immediate", "--wait", "stop")
	report, err := r.DrillBackup(t.Context())
	if err != nil || !strings.Contains(strings.Join(report.Checked, "; "), "every row of 2 tables") {
		t.Error(err, report)
	}
}
