//go:build postgres

package postgres

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/primarylease"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// content is a checksum per table, read from the tables themselves.
func (r *run) content() string {
	r.t.Helper()
	var sums []string
	err := r.control.Do(context.Background(), func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, "select quote_ident(relname) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1")
		if err != nil {
			return err
		}
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, table := range tables {
			var sum string
			if err == nil {
				err = c.QueryRow(ctx, "select count(*) || ':' || coalesce(sum(hashtextextended(t::text, 0)), 0) from public."+table+" t").Scan(&sum)
			}
			sums = append(sums, table+"="+sum)
		}
		return err
	})
	if err != nil {
		r.t.Fatalf("read the tables: %v", err)
	}
	return strings.Join(sums, " ")
}

// sameContent waits until a replica has replayed what the primary has, and
// compares the tables.
func (r *run) sameContent(primary *run) {
	r.t.Helper()
	r.untilReplayed(primary.query("select pg_current_wal_flush_lsn()::text"))
	if own, its := r.content(), primary.content(); own != its {
		r.t.Errorf("%s holds %s, and the primary %s", r.o.Identity.Pod, own, its)
	}
}

// fill writes rows that distinguish one history from another.
func (r *run) fill(tag string, rows string) {
	r.t.Helper()
	r.exec("create table if not exists public.ledger (n bigserial primary key, tag text, pad text)",
		"insert into public.ledger (tag, pad) select '"+tag+"', repeat(md5(g::text), 8) from generate_series(1, "+rows+") g")
}

// twoMembers are a primary and its replica, whose volumes are at rest as old,
// and which have written more since.
func twoMembers(t *testing.T) (w *world, volumes [2]string, old string) {
	t.Helper()
	w, volumes = newWorld(t, 2), [2]string{t.TempDir(), t.TempDir()}
	w.keepLeading()
	primary, replica := w.start(0, volumes[0], "uid-0"), w.start(1, volumes[1], "uid-1")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.fill("before", "1000")
	replica.untilRole(v1alpha1.RoleReplica)
	replica.sameContent(primary)
	primary.stop()
	old = snapshot(t, volumes[0])

	primary = w.start(0, volumes[0], "uid-0b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.fill("lost", "20000")
	replica.sameContent(primary)
	replica.stop()
	primary.stop()
	return w, volumes, old
}

// diverged checks that a volume which holds what was discarded is kept, and that
// a new copy holds what the primary does.
func (w *world) diverged(primary *run, volume string) {
	w.t.Helper()
	away := w.start(1, volume, "uid-1x")
	away.untilHeld(agentapi.HoldDataDiverged)
	away.stop()
	again := w.start(1, volume, "uid-1y")
	again.untilHeld(agentapi.HoldDataDiverged)
	again.stop()
	anew := w.start(1, w.t.TempDir(), "uid-1z")
	anew.untilRole(v1alpha1.RoleReplica)
	anew.sameContent(primary)
}

// The primary goes on with an older copy of its volume while the replica is
// away, and writes more than was discarded.
func TestRealOlderCopyAndAReplicaThatWasAway(t *testing.T) {
	w, volumes, old := twoMembers(t)
	w.goOn("once")
	primary := w.start(0, old, "uid-0c")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.fill("after", "40000")
	primary.exec("checkpoint")
	w.diverged(primary, volumes[1])
}

// The same where the volume was kept from a scale-down: the cluster declares one
// member when the primary goes on.
func TestRealOlderCopyAndAVolumeOfAScaleDown(t *testing.T) {
	w, volumes, old := twoMembers(t)
	w.configure(func(c *agentapi.ClusterConfig) { c.Members = []string{"orders-0"} })
	w.goOn("once")
	primary := w.start(0, old, "uid-0c")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.fill("after", "40000")
	w.configure(func(c *agentapi.ClusterConfig) { c.Members = []string{"orders-0", "orders-1"} })
	w.diverged(primary, volumes[1])
}

// A replica that runs all the time, and a primary that passes it at once.
func TestRealOlderCopyThatWritesALotAtOnce(t *testing.T) {
	w, volumes, old := twoMembers(t)
	replica := w.start(1, volumes[1], "uid-1b")
	replica.until("serving", func(s agentapi.Status) bool { return s.Serving })
	w.goOn("once")
	primary := w.start(0, old, "uid-0c")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.fill("after", "60000")
	replica.untilHeld(agentapi.HoldDataDiverged)
	replica.stop()
	w.diverged(primary, volumes[1])
}

// A replica whose primary goes on with an older copy, and writes little: it serves
// nothing of what was discarded, whether it ran all the time or starts with the
// primary.
func TestRealOlderCopyThatWritesLittle(t *testing.T) {
	for _, runs := range []bool{false, true} {
		w, volumes, old := twoMembers(t)
		var replica *run
		if runs {
			replica = w.start(1, volumes[1], "uid-1b")
			replica.until("serving", func(s agentapi.Status) bool { return s.Serving })
		}
		w.goOn("once")
		primary := w.start(0, old, "uid-0c")
		primary.untilRole(v1alpha1.RolePrimary)
		if got := primary.Store.Get().PendingRestart; len(got) > 0 {
			t.Errorf("waits for a restart: %v", got)
		}
		primary.fill("after", "10")
		if !runs {
			replica = w.start(1, volumes[1], "uid-1b")
		}
		replica.until("held", func(s agentapi.Status) bool {
			if s.Role == v1alpha1.RoleReplica {
				t.Errorf("serves what was discarded: %+v", s)
			}
			return s.State == agentapi.StateHeld
		})
		replica.untilHeld(agentapi.HoldDataDiverged)
		replica.stop()
		w.diverged(primary, volumes[1])
		primary.stop()
	}
}

// A primary that crashed leads again while a member does not answer, on a timeline of its
// own, which that one then follows.
func TestRealRule19CrashWithoutTheOtherMember(t *testing.T) {
	w, volumes, _ := twoMembers(t)
	primary := w.start(0, volumes[0], "uid-0c")
	before := readReplication(primary.untilRole(v1alpha1.RolePrimary)).Timeline
	primary.fill("more", "100")
	primary.o.StopTimeout = 0 // no time for a shutdown in order
	primary.stop()

	primary = w.start(0, volumes[0], "uid-0d")
	if got := primary.untilRole(v1alpha1.RolePrimary); readReplication(got).Timeline <= before {
		t.Errorf("leads on timeline %d after %d", readReplication(got).Timeline, before)
	}
	primary.fill("on", "100")
	replica := w.start(1, volumes[1], "uid-1b")
	replica.untilRole(v1alpha1.RoleReplica)
	replica.sameContent(primary)
}

// A Lease that was deleted while no member led elects none, whatever the members hold.
// The one that a person names leads.
func TestRealRule5LostLeaseElectsNoMember(t *testing.T) {
	w, volumes, _ := twoMembers(t)
	w.lease.change(func(there *bool, r *lease.Record, f *primarylease.Facts) {
		*there, *r, *f = false, lease.Record{}, primarylease.Facts{}
	})
	primary, replica := w.start(0, volumes[0], "uid-0c"), w.start(1, volumes[1], "uid-1b")
	for _, m := range []*run{primary, replica} {
		m.until("stalled", func(s agentapi.Status) bool {
			if s.Role == v1alpha1.RolePrimary {
				t.Fatalf("%s leads", s.Pod)
			}
			e := readReplication(s).Election
			return e != nil && strings.Contains(e.Stalled, "the Lease is missing")
		})
	}
	if record, there := w.lease.read(); there {
		t.Fatalf("the Lease was made again: %+v", record)
	}
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Promotion = &postgresapi.PromotionRequest{ID: "named", Pod: "orders-0"}
	})
	if got := primary.untilRole(v1alpha1.RolePrimary); readReplication(got).Election.Forced != "named" {
		t.Errorf("leads by request %q", readReplication(got).Election.Forced)
	}
	primary.fill("after", "100")
	replica.untilRole(v1alpha1.RoleReplica)
	replica.sameContent(primary)
}

// The volumes of the primary and of the replica went on outside of Holdfast, each in its
// own way, on the timeline that both were on. By position all is well, no election
// explains it, and by content it is not: the replica's data is kept. That holds for a
// replica that starts, and for one that runs when the primary comes.
func TestRealRule18OtherContentOnOneTimelineIsHeld(t *testing.T) {
	for _, runs := range []bool{false, true} {
		w, volumes, _ := twoMembers(t)
		own := filepath.Join(volumes[1], datavolume.DataName)
		if err := os.Remove(filepath.Join(own, "standby.signal")); err != nil {
			t.Fatal(err)
		}
		writeOutside(t, own, "create table public.mine (n int)")
		writeOutside(t, filepath.Join(volumes[0], datavolume.DataName), "create table public.other (n int, pad text);"+
			" insert into public.other select n, repeat(md5(n::text), 30) from generate_series(1, 60000) n")
		var replica *run
		if runs {
			replica = w.start(1, volumes[1], "uid-1b")
			replica.until("serving", func(s agentapi.Status) bool { return s.Serving })
		}
		primary := w.start(0, volumes[0], "uid-0c")
		primary.untilRole(v1alpha1.RolePrimary)
		if !runs {
			replica = w.start(1, volumes[1], "uid-1b")
		}
		replica.untilHeld(agentapi.HoldDataDiverged)
		if message := replica.Store.Get().Message; !strings.Contains(message, "is not the primary's") {
			t.Errorf("message %q", message)
		}
		replica.stop()
		w.diverged(primary, volumes[1])
		primary.stop()
	}
}

// writeOutside has a server that knows nothing of Holdfast write.
func writeOutside(t *testing.T, data, sql string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a test's own
	mustWrite(t, filepath.Join(dir, "hba.conf"), "local all all trust\n")
	mustWrite(t, filepath.Join(dir, "postgresql.conf"), "listen_addresses = ''\nunix_socket_directories = '"+dir+"'\nhba_file = '"+dir+"/hba.conf'\nmax_wal_senders = 20\nmax_replication_slots = 20\n")
	bin, err := server.FindPrograms()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"pg_ctl", "-D", data, "-w", "-l", filepath.Join(dir, "log"), "-o", "-c config_file=" + dir + "/postgresql.conf", "start"},
		{"psql", "-h", dir, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-c", sql},
		{"pg_ctl", "-D", data, "-w", "-m", "fast", "stop"},
	} {
		if out, err := exec.Command(filepath.Join(bin, args[0]), args[1:]...).CombinedOutput(); err != nil {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("%v: %v: %s\n%s", args, err, out, log)
		}
	}
}
