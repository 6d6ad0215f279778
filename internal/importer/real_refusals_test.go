//go:build postgres

package importer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/postgrestest"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// hold has a session of the application run a statement, and stay open.
func (r *realWorld) hold(statement string) (end func()) {
	r.t.Helper()
	c, err := r.i.Target.connect(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := c.Exec(r.t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		r.t.Fatal(err)
	}
	return func() { _ = c.Close(context.WithoutCancel(r.t.Context())) }
}

// A database with data is never written, also where that came after the first look; and of
// two imports at once one goes on.
func TestRealImportRefusesWhatIsThere(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(1000)
	r.during = func(run Run) {
		if run.Step == v1alpha1.ImportStepCopying {
			t.Error("a table was copied")
		}
	}
	for _, content := range []struct{ make, drop string }{
		{"create table customers (mine text)", "drop table customers"},
		{"create schema empty", "drop schema empty"},
		{"create function f() returns int language sql as 'select 1'", "drop function f()"},
		{"create type feeling as enum ('ok')", "drop type feeling"},
		{"select lo_create(77)", "select lo_unlink(77)"},
	} {
		r.run(r.i.Target, content.make)
		r.fails("holds data already", true)
		r.run(r.i.Target, content.drop)
	}
	r.wantNothing()

	once := false
	r.during = func(run Run) {
		if run.Step == v1alpha1.ImportStepChecking && !once {
			once = true
			r.run(r.i.Target, "create table customers (mine text)", "insert into customers values ('kept')")
		}
	}
	r.fails("holds data already: public.customers (SQLSTATE HF002)", false)
	r.fails("holds data already", true)
	c, err := r.i.Target.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeConnection(context.Background(), c)
	var kept string
	if err := c.QueryRow(t.Context(), "select mine from customers").Scan(&kept); err != nil || kept != "kept" {
		t.Errorf("%q, %v", kept, err)
	}
	r.run(r.i.Target, "drop table customers")

	end := r.hold(fmt.Sprintf("begin; select pg_advisory_xact_lock(%d)", int64(lockKey)))
	r.fails("another import has not ended", false)
	r.wantNothing()
	end()
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Errorf("once the other one has ended: %v", err)
	}
}

// What the new server lacks is named before anything is copied.
func TestRealImportNamesWhatIsMissing(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(1000)
	r.run(r.i.Source, "create extension pageinspect", "comment on extension pageinspect is 'of a superuser'", "create policy own on customers to shop_owner using (true)")
	r.fails("only a superuser may create: pageinspect", true)
	r.run(r.superuser(), "create extension pageinspect", "create extension citext")
	r.fails("roles that the new cluster does not have: shop_owner", true)
	r.run(r.superuser(), "create role shop_owner")
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Fatalf("once they are there: %v", err)
	}
	c, err := r.i.Target.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeConnection(context.Background(), c)
	var policies, extensions int
	if err := c.QueryRow(t.Context(), "select (select count(*) from pg_policy), (select count(*) from pg_extension where extname in ('citext', 'pageinspect'))").Scan(&policies, &extensions); err != nil || policies != 1 || extensions != 2 {
		t.Errorf("%d policies, %d extensions, %v", policies, extensions, err)
	}
}

// A source that holds nothing is a wrong one.
func TestRealImportRefusesAnEmptySource(t *testing.T) {
	r := newRealWorld(t, 1)
	r.run(r.admin, "drop database if exists shop with (force)", "create database shop")
	t.Cleanup(func() { r.run(r.admin, "drop database if exists shop with (force)") })
	r.fails("database shop of the source holds nothing", true)
	r.wantNothing()
	r.run(r.i.Source, "create view v as select 1")
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Error(err)
	}
}

// A role that cannot read all of the source is refused: a part is never taken for the whole.
func TestRealImportNeedsToReadAll(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(1000)
	r.run(r.admin, "drop role if exists reader", "create role reader login password 'of the reader'")
	t.Cleanup(func() { r.run(r.admin, "drop role if exists reader") })
	all := r.i.Source
	r.i.Source.User, r.i.Source.Password = "reader", "of the reader"
	r.fails("permission denied", true)
	r.run(all, "grant pg_read_all_data to reader")
	r.fails("row-level security", true)
	r.run(all, "alter role reader bypassrls")
	r.fails("permission denied for large object", true)
	r.wantNothing()
	r.run(all, "select lo_unlink(oid) from pg_largeobject_metadata")
	if result, err := r.i.Import(t.Context()); err != nil || result.LargeObjects != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

// Text of another encoding is converted, and what is no text is refused.
func TestRealImportConvertsEncodings(t *testing.T) {
	r := newRealWorld(t, 1)
	remake := func(encoding string) {
		r.run(r.admin, "drop database if exists shop with (force)", "create database shop encoding '"+encoding+"' locale 'C' template template0")
	}
	t.Cleanup(func() { r.run(r.admin, "drop database if exists shop with (force)") })
	remake("SQL_ASCII")
	r.run(r.i.Source, "set client_encoding to 'SQL_ASCII'", `create table words (w text)`, `insert into words values (E'a\xff')`)
	r.fails("invalid byte sequence", true)
	r.wantNothing()
	remake("LATIN1")
	r.run(r.i.Source, "set client_encoding to 'UTF8'", `create table "Wörter" (w text)`, `insert into "Wörter" values ('Größe')`)
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := r.i.Target.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeConnection(context.Background(), c)
	var word string
	if err := c.QueryRow(t.Context(), `select w from "Wörter"`).Scan(&word); err != nil || word != "Größe" {
		t.Errorf("%q, %v", word, err)
	}
}

// A session that a pooler gives to others afterwards is as it was.
func TestRealImportLeavesTheSessionOfTheSourceAlone(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(1000)
	c, err := r.i.Source.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeConnection(context.Background(), c)
	settings := func(q interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}) (got string) {
		t.Helper()
		if err := q.QueryRow(t.Context(), "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where name ~ 'read_only$|^row_security$|timeout$|^client_encoding$'").Scan(&got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := settings(c)
	tx, err := r.i.beginReading(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if during := settings(tx); !strings.Contains(during, " transaction_read_only=on") || !strings.Contains(during, "row_security=off") {
		t.Errorf("%s", during)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := settings(c); after != before {
		t.Errorf("before: %s\nafter: %s", before, after)
	}
}

// The certificate of the source is verified as tls.mode says.
func TestRealImportVerifiesTheSource(t *testing.T) {
	r := newRealWorld(t, 1)
	source, other := postgrestest.NewWorld(t, 1, nil).Members[0], r.target
	source.Exec("create role reader login password 'right'")
	s := r.serverOf(source, false)
	s.Side, s.Database, s.User, s.Password = "the source", "postgres", "reader", "right"
	connect := func(s Server) error {
		c, err := s.connect(t.Context())
		if err == nil {
			closeConnection(t.Context(), c)
		}
		return err
	}
	if err := connect(s); err != nil {
		t.Errorf("with its CA: %v", err)
	}
	s.RootCert = filepath.Join(other.Run, "tls", "ca.crt")
	if err := connect(s); !backup.InVain(err) || !strings.Contains(err.Error(), "x509") {
		t.Errorf("with another CA: %v", err)
	}
	s.TLSMode, s.RootCert = "require", ""
	if err := connect(s); err != nil {
		t.Errorf("without verifying: %v", err)
	}
	s.TLSMode = "disable"
	if err := connect(s); !backup.InVain(err) || !strings.Contains(err.Error(), "no encryption") {
		t.Errorf("without TLS, which the server wants: %v", err)
	}
	if os.Getenv("HOLDFAST_IMPORT_SOURCE_PORT") != "" {
		plain := r.admin
		plain.TLSMode = "require"
		if err := connect(plain); !backup.InVain(err) || !strings.Contains(err.Error(), "TLS") {
			t.Errorf("of a server without TLS: %v", err)
		}
	}
	s.Port, s.TLSMode = 1, "require"
	if err := connect(s); err == nil || backup.InVain(err) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("where nothing listens: %v", err)
	}
}

// An import is complete once the member that takes writes then has it, and those that
// follow it.
func TestRealImportIsConfirmed(t *testing.T) {
	r := newRealWorld(t, 2)
	r.fillSource(40_000)
	standby, joined := r.members[1], false
	timeline := standby.One("select timeline_id::text from pg_control_checkpoint()")
	if timeline != "1" {
		t.Fatalf("timeline %s", timeline)
	}
	standby.EndReceiver()
	flushed := ""
	r.during = func(run Run) {
		if run.Step == v1alpha1.ImportStepConfirming && strings.Contains(run.Progress, "MiB to receive") && !joined {
			joined, flushed = true, r.target.One("select pg_current_wal_flush_lsn()::text")
			standby.Join(r.target, 1)
		}
	}
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !joined || standby.One("select (pg_last_wal_receive_lsn() >= '"+flushed+"')::text") != "true" {
		t.Errorf("complete before the standby has it: %t, %s of %s", joined, standby.One("select pg_last_wal_receive_lsn()::text"), flushed)
	}

	transactions := func() string { return r.target.One("select pg_snapshot_xmax(pg_current_snapshot())::text") }
	before := transactions()
	r.during = func(Run) {}
	if _, err := r.i.Import(t.Context()); err != nil || transactions() == before {
		t.Errorf("no commit asks members for what they have: %v", err)
	}
	// One that is started again refuses sessions for a while, and is waited for.
	standby.Kill()
	r.target.Fill("more", 1000)
	joined = false
	r.during = func(run Run) {
		if strings.Contains(run.Progress, "does not answer") && !joined {
			joined, flushed = true, r.target.One("select pg_current_wal_flush_lsn()::text")
			standby.Start(rolechange.Live{Upstream: standby.ConnectionTo(r.target).String()})
		}
	}
	if _, err := r.i.Import(t.Context()); err != nil || !joined || standby.One("select (pg_last_wal_receive_lsn() >= '"+flushed+"')::text") != "true" {
		t.Errorf("%v; complete before a standby that was started again has it: %t", err, joined)
	}

	standby.EndReceiver()
	r.target.Fill("more", 1000)
	r.i.Patience, r.during = time.Second, func(Run) {}
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Errorf("a standby that receives nothing is waited for: %v", err)
	}
	standby.Kill()
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Errorf("a standby that is away is waited for: %v", err)
	}

	comment := r.target.One("select shobj_description(oid, 'pg_database') from pg_database where datname = 'app'")
	r.during = func(run Run) { // as after a failover while members are waited for
		if strings.Contains(run.Progress, "does not answer") {
			r.target.Exec("comment on database app is null")
		}
	}
	r.fails("does not have what was imported", false)
	r.target.Exec("comment on database app is " + literal(comment))
	r.during = func(run Run) { // as after a failover to a member that has not received it
		if run.Step == v1alpha1.ImportStepConfirming {
			r.target.Exec("comment on database app is null")
		}
	}
	r.fails("does not have what was imported", false)
}

// A member that is promoted without what was imported, while members are waited for, has it
// imported again.
func TestRealImportOutlivesAFailover(t *testing.T) {
	r := newRealWorld(t, 2)
	r.fillSource(40_000)
	standby, promoted := r.members[1], false
	r.target.SameContent(standby)
	standby.EndReceiver()
	r.i.Patience = 2 * time.Second
	r.during = func(run Run) {
		if strings.Contains(run.Progress, "MiB to receive") && !promoted {
			promoted = true
			r.target.Kill()
			standby.Lead(2, rolechange.Quorum{})
			r.target, r.i.Target = standby, r.serverOf(standby, true)
		}
	}
	r.fails("promoted before it had received", false)
	if !promoted {
		t.Fatal("nothing was promoted")
	}
	r.wantNothing()
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.contentOf(r.i.Source), r.contentOf(r.i.Target)); diff != "" {
		t.Errorf("the copy differs (-source +copy):\n%s", diff)
	}
}

// A copy that lacks a row is refused, and rolled back.
func TestRealImportIsVerified(t *testing.T) {
	r := newRealWorld(t, 1)
	r.fillSource(1000)
	if _, err := r.i.Import(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := r.i.Target.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeConnection(context.Background(), c)
	for says, lost := range map[string]inventory{
		"rows of public.customers: 100 in the copy, and 101 in the source": {Tables: []table{{Name: "public.customers", Rows: 101}}},
		"rows of public.hidden: 1 in the copy, and 2 in the source":        {Tables: []table{{Name: "public.hidden", Rows: 2, Forced: true}}},
		"sequences: 3 in the copy, and 4 in the source":                    {Sequences: 4},
		"large objects: 40 in the copy, and 39 in the source":              {Sequences: 3, LargeObjects: 39},
	} {
		_, err := c.Exec(t.Context(), "begin;"+verification(lost, "app", "record")+"commit;", pgx.QueryExecModeSimpleProtocol)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
		if _, err := c.Exec(t.Context(), "rollback"); err != nil {
			t.Fatal(err)
		}
	}
}
