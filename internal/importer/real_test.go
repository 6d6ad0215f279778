//go:build postgres

package importer

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/postgrestest"
	"github.com/holdfast-db/holdfast/internal/backup"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// smallDisk is a file system of 64 MiB that test/run-postgres-tests.sh mounts.
const smallDisk = "/srv"

// realWorld is a source, and a new cluster beside it.
type realWorld struct {
	t       *testing.T
	target  *postgrestest.Member
	members []*postgrestest.Member
	admin   Server // of the source
	i       *Importer
	// during is called with each report.
	during func(Run)
}

func newRealWorld(t *testing.T, members int) *realWorld {
	t.Helper()
	cluster := postgrestest.NewWorld(t, members, map[string]string{"max_wal_size": "1GB"})
	r := &realWorld{t: t, target: cluster.Members[0], members: cluster.Members, during: func(Run) {}}
	r.target.Exec("drop table public.ledger")
	err := r.target.Session.Do(t.Context(), func(ctx context.Context, c *pgx.Conn) error {
		_, err := accounts.EnsureAccount(ctx, c, accounts.Account{Database: "app", Owner: "app", Password: "of-the-app"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.admin = Server{Side: "the source", Hosts: []string{"localhost"}, Database: "postgres", User: "importer", Password: "it's \\ secret", TLSMode: "disable"}
	if port := os.Getenv("HOLDFAST_IMPORT_SOURCE_PORT"); port != "" {
		r.admin.Port, _ = strconv.Atoi(port)
	} else {
		source := postgrestest.NewWorld(t, 1, nil).Members[0]
		source.Exec(`create role importer superuser login password E'it''s \\ secret'`)
		r.admin.Port, _ = strconv.Atoi(source.One("show port"))
		r.admin.TLSMode, r.admin.RootCert = "verify-full", filepath.Join(source.Run, "tls", "ca.crt")
	}
	source := r.admin
	source.Database = "shop"
	r.i = &Importer{
		Source: source, UID: "uid", DatabaseHash: "hash", Programs: cluster.Programs.Dir, Log: slog.New(slog.DiscardHandler), Patience: time.Minute,
		Target: r.serverOf(r.target, true), Report: func(_ context.Context, run Run) { r.during(run) },
	}
	for _, m := range cluster.Members {
		r.i.Members = append(r.i.Members, r.serverOf(m, false))
	}
	return r
}

func (r *realWorld) serverOf(m *postgrestest.Member, writable bool) Server {
	r.t.Helper()
	port, err := strconv.Atoi(m.One("show port"))
	if err != nil {
		r.t.Fatal(err)
	}
	return Server{Side: "the new database", Hosts: []string{"localhost"}, Port: port, Database: "app", User: "app", Password: "of-the-app",
		TLSMode: "verify-full", RootCert: filepath.Join(m.Run, "tls", "ca.crt"), Writable: writable}
}

// superuser of the new database.
func (r *realWorld) superuser() Server {
	s := r.i.Target
	s.Hosts, s.User, s.Password, s.TLSMode, s.RootCert = []string{r.target.Run}, "postgres", "", "disable", ""
	return s
}

func (r *realWorld) run(s Server, statements ...string) {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context()) // also when the test is cleaned up
	c, err := s.connect(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	for _, sql := range statements {
		if _, err := c.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			r.t.Fatalf("%.100s: %v", sql, err)
		}
	}
}

// fillSource makes a database of about 100 MiB that has what databases have.
func (r *realWorld) fillSource(rows int) {
	r.t.Helper()
	r.run(r.admin, "drop database if exists shop with (force)", "drop role if exists shop_owner", "create database shop")
	r.run(r.i.Source,
		`create schema "Odd ""Name"""`, "create extension citext", "comment on extension citext is 'ours; with a semicolon'",
		"create type mood as enum ('sad', 'ok')", "create domain positive as int check (value > 0)",
		`create table customers (id bigint generated always as identity primary key, name citext unique, feels mood default 'ok', n positive)`,
		`create table "Odd ""Name"""."Orders$holdfast$; COMMIT; --" (id bigserial primary key, customer bigint not null references customers, pad text, at timestamptz default now(), raw bytea, number numeric, parts int[], j jsonb)`,
		`create table events (at date, what text) partition by range (at)`,
		`create table events_1 partition of events for values from ('2026-01-01') to ('2026-02-01')`,
		`create table empty ()`, `create table hidden (t text)`, `insert into hidden values ('x')`, `alter table hidden enable row level security, force row level security`,
		"create procedure tidy() language plpgsql as $$\nbegin\nCOMMIT;\n\n-- it goes on\nend\n$$",
		`create view who as select name from customers`,
		fmt.Sprintf(`insert into customers (name, n) select E'Customer\t\\.' || g || E'\n\\.\nCOMMIT;', g from generate_series(1, %d) g`, rows/10),
		fmt.Sprintf(`insert into "Odd ""Name"""."Orders$holdfast$; COMMIT; --" (customer, pad, raw, number, parts, j)
			select 1 + g %% %d, repeat(md5(g::text), 6), decode(md5(g::text), 'hex'), g / 7.0, array[g, null], jsonb_build_object('g', g) from generate_series(1, %d) g`, rows/10, rows),
		`insert into events select '2026-01-01'::date + g % 31, 'e' || g from generate_series(1, 1000) g`,
		`create materialized view sums as select customer, count(*) from "Odd ""Name"""."Orders$holdfast$; COMMIT; --" group by 1`,
		`create sequence own start 1000 increment 7`, `select nextval('own') from generate_series(1, 5)`,
		`select lo_from_bytea(0, decode(repeat(md5(g::text), 1000), 'hex')) from generate_series(1, 40) g`,
		`create role shop_owner`, `alter table empty owner to shop_owner`, `grant select on customers to shop_owner`, `analyze`)
	r.t.Cleanup(func() { r.run(r.admin, "drop database if exists shop with (force)", "drop role if exists shop_owner") })
}

// content is a checksum of each table and materialized view, of sequences and of large
// objects. The superuser reads it, or row-level security would hide some.
func (r *realWorld) content(c *pgx.Conn) map[string]string {
	r.t.Helper()
	ctx, sums := r.t.Context(), map[string]string{}
	if _, err := c.Exec(ctx, "set timezone to 'UTC'; set datestyle to 'ISO'; set extra_float_digits to 1", pgx.QueryExecModeSimpleProtocol); err != nil {
		r.t.Fatal(err)
	}
	rows, err := c.Query(ctx, `select quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relkind::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where c.relkind in ('r', 'm', 'S') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'`)
	if err != nil {
		r.t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f [2]string, err error) { return f, row.Scan(&f[0], &f[1]) })
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range found {
		query := "select count(*) || ':' || coalesce(sum(hashtextextended(t::text, 0)), 0) from " + f[0] + " t"
		if f[1] == "S" {
			query = "select last_value || ' ' || is_called from " + f[0]
		}
		var sum string
		if err := c.QueryRow(ctx, query).Scan(&sum); err != nil {
			r.t.Fatalf("%s: %v", f[0], err)
		}
		sums[f[0]] = sum
	}
	for name, query := range map[string]string{
		"large objects": `select string_agg(oid || md5(lo_get(oid)), ',' order by oid) from pg_largeobject_metadata`,
		"constraints":   `select string_agg(conname || pg_get_constraintdef(oid), ',' order by conname) from pg_constraint where connamespace in (select oid from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema') and contype in ('f', 'p', 'u', 'c')`,
		"row security":  `select string_agg(relname || ' ' || relrowsecurity || relforcerowsecurity, ',' order by relname) from pg_class where relrowsecurity or relforcerowsecurity`,
		"procedure":     `select prosrc from pg_proc where proname = 'tidy'`,
		"identity":      `select string_agg(attname::text || attidentity::text, ',' order by attrelid, attnum) from pg_attribute where attidentity <> ''`,
		"extension":     `select obj_description(oid, 'pg_extension') from pg_extension where extname = 'citext'`,
	} {
		var sum *string
		if err := c.QueryRow(ctx, query).Scan(&sum); err != nil {
			r.t.Fatalf("%s: %v", name, err)
		}
		if sum != nil {
			sums[name] = *sum
		}
	}
	return sums
}

func (r *realWorld) contentOf(s Server) map[string]string {
	r.t.Helper()
	if s.Side == r.i.Target.Side {
		r.target.Exec("alter role app superuser") // to read what is hidden, and no longer
		defer r.target.Exec("alter role app nosuperuser")
	}
	c, err := s.connect(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	return r.content(c)
}

// wantNothing checks that nothing is left of an import.
func (r *realWorld) wantNothing() {
	r.t.Helper()
	c, err := r.i.Target.connect(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	var comment, extension string
	err = c.QueryRow(r.t.Context(), `select coalesce(shobj_description(oid, 'pg_database'), ''), coalesce((select extname::text from pg_extension where extname = 'citext'), '')
		from pg_database where datname = current_database()`).Scan(&comment, &extension)
	contentErr := r.i.refuseContent(r.t.Context(), c)
	if err != nil || contentErr != nil || comment+extension != "" {
		r.t.Errorf("%q %q is left, %v %v", comment, extension, err, contentErr)
	}
}

func (r *realWorld) fails(says string, permanent bool) {
	r.t.Helper()
	_, err := r.i.Import(r.t.Context())
	if err == nil || !strings.Contains(err.Error(), says) || backup.InVain(err) != permanent {
		r.t.Errorf("%v (permanent %t), want %q (permanent %t)", err, backup.InVain(err), says, permanent)
	}
	if err != nil && strings.Contains(err.Error(), r.i.Source.Password) {
		r.t.Errorf("the password is in %v", err)
	}
}

// All of a source comes over, row by row; and what a try has recorded is not done again.
func TestRealImport(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(300_000)
	before := r.contentOf(r.i.Source)
	began, once := time.Now(), false
	r.during = func(run Run) {
		if run.Step == v1alpha1.ImportStepCopying && !once { // the source is in use meanwhile
			once = true
			r.run(r.i.Source, "insert into hidden values ('later')")
		}
	}
	result, err := r.i.Import(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v of %s in %s", *result, result.Size.String(), time.Since(began))
	if result.Size.Value() < 90<<20 || result.LargeObjects != 40 || !once {
		t.Errorf("%+v", result)
	}
	got := r.contentOf(r.i.Target)
	if diff := cmp.Diff(before, got); diff != "" {
		t.Errorf("the copy differs (-source +copy):\n%s", diff)
	}
	r.run(r.i.Source, "delete from hidden where t = 'later'")
	if diff := cmp.Diff(before, r.contentOf(r.i.Source)); diff != "" {
		t.Errorf("the source was written (-before +after):\n%s", diff)
	}
	r.during = func(Run) {}
	again, err := r.i.Import(t.Context())
	if err != nil || again.Rows != result.Rows {
		t.Errorf("after a crash: %+v, %v", again, err)
	}
	r.i.UID = "another"
	r.fails("holds data already", true)
}

// What is counted and what is copied is of one snapshot: what clients of the source commit
// after that was taken is in neither. No count changes here, so that only the snapshot can
// tell.
func TestRealImportReadsOneSnapshot(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(1_000)
	before := r.contentOf(r.i.Source)
	written := false
	r.during = func(run Run) {
		if run.Step != v1alpha1.ImportStepChecking || run.Progress == "" || written {
			return
		}
		written = true
		r.run(r.i.Source, "update customers set feels = 'sad'", "delete from hidden; insert into hidden values ('later')",
			"select lo_unlink(min(oid)), lo_from_bytea(0, 'later') from pg_largeobject_metadata",
			"create or replace procedure tidy() language plpgsql as 'begin end'", "create table later ()")
	}
	result, err := r.i.Import(t.Context())
	if err != nil || !written {
		t.Fatalf("%+v, %v, written %t", result, err, written)
	}
	if diff := cmp.Diff(before, r.contentOf(r.i.Target)); diff != "" {
		t.Errorf("the copy is of another moment than its check (-checked +copied):\n%s", diff)
	}
	if now := r.contentOf(r.i.Source); cmp.Equal(before, now) {
		t.Error("nothing was written meanwhile")
	}
}

// A try that fails, wherever, leaves nothing; and the next one succeeds.
func TestRealImportLeavesNothingHalf(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(40_000)
	right := r.i.Source

	r.i.Source.Password = "wrong"
	r.fails("password authentication failed", true)
	r.i.Source = right
	r.i.Source.Database = "nowhere"
	r.fails(`database "nowhere" does not exist`, true)
	r.i.Source = right

	r.run(right, "update pg_extension set extname = 'nosuch' where extname = 'citext'")
	r.fails("does not have: nosuch", true)
	r.run(right, "update pg_extension set extname = 'citext' where extname = 'nosuch'")
	r.wantNothing()

	kill := func(s Server) func(Run) {
		once := false
		return func(run Run) {
			if run.Step == v1alpha1.ImportStepCopying && strings.HasPrefix(run.Progress, "table 1 ") && !once {
				once = true
				r.run(s, "select pg_terminate_backend(pid) from pg_stat_activity where application_name in ('pg_dump', 'holdfast-import', 'psql') and pid <> pg_backend_pid()")
			}
		}
	}
	r.during = kill(r.admin)
	r.fails("", false)
	r.wantNothing()
	r.during = kill(r.i.Target)
	r.fails("", false)
	r.wantNothing()

	ctx, cancel := context.WithCancel(t.Context())
	r.during = func(run Run) {
		if run.Step == v1alpha1.ImportStepVerifying {
			cancel()
		}
	}
	if _, err := r.i.Import(ctx); err == nil {
		t.Error("an import that was stopped succeeded")
	}
	r.during = func(Run) {}
	r.wantNothing()

	if stat, err := os.Stat(smallDisk); err == nil && stat.Mode().Perm() == 0o777 {
		small, err := os.MkdirTemp(smallDisk, "small")
		if err != nil {
			t.Fatal(err)
		}
		r.fillSource(300_000)
		r.target.Exec("create tablespace small location '"+small+"'", "grant create on tablespace small to app", "alter database app set default_tablespace = small")
		r.fails("raise spec.storage.size", true)
		r.wantNothing()
		r.target.Exec("alter database app reset default_tablespace")
	} else {
		t.Log("no small file system is mounted: a full disk is not tried")
	}
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Fatalf("after all of these: %v", err)
	}
	if diff := cmp.Diff(r.contentOf(r.i.Source), r.contentOf(r.i.Target)); diff != "" {
		t.Errorf("the copy differs (-source +copy):\n%s", diff)
	}
}
