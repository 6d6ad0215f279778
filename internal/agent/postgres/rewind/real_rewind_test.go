//go:build postgres

package rewind_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/postgrestest"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rewind"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/wal"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// newRewinder is that of a member, which led the first timeline, if it led.
func newRewinder(w *postgrestest.World, m *postgrestest.Member, led ...rewind.Term) *rewind.Rewinder {
	return rewind.NewRewinder(rewind.Options{
		Space: func() diskspace.Space { return diskspace.Space{} },
		Log:   slog.New(slog.DiscardHandler), Volume: m.Volume, PGData: m.PGData(), RunDir: m.Run, Programs: w.Programs, Lock: m.Lock,
		Settings: func(server.ControlData) map[string]string {
			return settings.ComputeSettings(m.Input(rolechange.Live{}))
		},
		Led: func() []rewind.Term { return led },
	})
}

var firstTerm = rewind.Term{Term: 1, Timeline: 1}

// failOver has the first member write what no other receives, kills it, and has the
// standby that holds most lead timeline 2.
func failOver(w *postgrestest.World) (former, primary *postgrestest.Member) {
	former, primary = w.Members[0], nil
	former.Fill("common", 2000)
	former.SameContent(w.Members[1:]...)
	var most lsn.Point
	for _, standby := range w.Members[1:] {
		if held := standby.EndReceiver(); held.End.Newer(most) {
			primary, most = standby, held.End
		}
	}
	former.Fill("lost", 3000)
	former.Exec("create table public.only_lost (n int)", "insert into public.only_lost select generate_series(1, 5000)",
		"select pg_switch_wal()", "update public.ledger set pad = 'changed' where n % 3 = 0", "select pg_switch_wal()")
	former.Fill("lost as well", 3000)
	former.Kill()
	primary.Lead(2, rolechange.Quorum{})
	primary.Exec("checkpoint")
	primary.Fill("new", 2000)
	primary.Exec("update public.ledger set pad = 'other' where n % 5 = 0")
	return former, primary
}

func rewindTo(t *testing.T, r *rewind.Rewinder, m, primary *postgrestest.Member, timeline int64) rewind.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, err := r.RewindData(ctx, rewind.Source{Connection: m.ConnectionTo(primary), Timeline: timeline})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func requireResult(t *testing.T, got rewind.Outcome, want rewind.Result) {
	t.Helper()
	if got.Result != want {
		t.Fatalf("%s (%s), want %s", got.Result, got.Reason, want)
	}
}

func requireStage(t *testing.T, m *postgrestest.Member, want rewind.Stage) {
	t.Helper()
	if got, err := rewind.ReadProgress(m.Volume); err != nil || got.Stage != want {
		t.Fatalf("stage %d, %v; want %d", got.Stage, err, want)
	}
}

// digestData is a sum of every file of a directory.
func digestData(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		sums[strings.TrimPrefix(path, dir+"/")] = hex.EncodeToString(sum[:8])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// followsAgain starts rewound data, and compares the tables.
func followsAgain(w *postgrestest.World, former, primary *postgrestest.Member, timeline int64) {
	former.StartRewound(primary)
	former.Join(primary, timeline)
	primary.Fill("after the rewind", 100)
	primary.SameContent(former)
}

func TestRealRule18FormerPrimaryIsRewound(t *testing.T) {
	w := postgrestest.NewWorld(t, 2, nil)
	former, primary := failOver(w)
	before := digestData(t, filepath.Join(former.PGData(), "pg_wal"))
	held, err := rolechange.MeasureWALAtRest(t.Context(), w.Programs, former.PGData())
	if err != nil {
		t.Fatal(err)
	}
	waiting := "archive_status/" + wal.Segment{Timeline: 1, Number: held.End.Position>>20 - 1}.Name(1<<20) + ".ready"
	if err := os.WriteFile(filepath.Join(former.PGData(), "pg_wal", waiting), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := rewindTo(t, newRewinder(w, former, firstTerm), former, primary, 2)
	requireResult(t, got, rewind.Rewound)
	requireStage(t, former, rewind.StageRewound)

	kept, err := rewind.ListKept(former.Volume)
	if err != nil || len(kept) != 1 || filepath.Base(kept[0]) != got.Kept || !strings.HasPrefix(got.Kept, "diverged-1-0-") {
		t.Fatalf("kept is %v, %v, and the outcome says %q", kept, err, got.Kept)
	}
	after := digestData(t, filepath.Join(kept[0], "pg_wal"))
	if _, found := after[waiting]; !found {
		t.Error("the mark of WAL that waits for the archive is not kept")
	}
	delete(after, waiting)
	same := map[string]string{}
	newest := ""
	for name := range after {
		newest = max(newest, name)
	}
	delete(after, newest) // crash recovery has written to it
	for name := range after {
		same[name] = before[name]
	}
	if diff := cmp.Diff(same, after); diff != "" || len(after) < 2 {
		t.Errorf("kept WAL (-was +is), newest %s:\n%s", newest, diff)
	}
	followsAgain(w, former, primary, 2)
	if err := rewind.DropKept(former.Volume); err != nil {
		t.Error(err)
	}
	if kept, err := rewind.ListKept(former.Volume); err != nil || len(kept) != 0 {
		t.Errorf("%v is left, %v", kept, err)
	}
	// And the roles change back.
	former.EndReceiver()
	primary.Fill("lost once more", 1000)
	primary.Kill()
	former.Lead(3, rolechange.Quorum{})
	former.Exec("checkpoint")
	requireResult(t, rewindTo(t, newRewinder(w, primary, rewind.Term{Term: 2, Timeline: 2}), primary, former, 3), rewind.Rewound)
	followsAgain(w, primary, former, 3)
}

// A rewind that is killed leaves data that is marked, and is repeated.
func TestRealRule18KilledRewindIsRepeated(t *testing.T) {
	w := postgrestest.NewWorld(t, 2, nil)
	former, primary := failOver(w)
	primary.Exec("create table public.big as select g n, repeat(md5(g::text), 20) pad from generate_series(1, 150000) g")
	big := filepath.Join(former.PGData(), primary.One("select pg_relation_filepath('public.big')"))
	full, err := strconv.ParseInt(primary.One("select pg_relation_size('public.big')::text"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r := newRewinder(w, former, firstTerm)
	interrupted := 0
	for _, part := range []int64{0, full / 3, full / 2} {
		done := make(chan rewind.Outcome, 1)
		go func() { done <- rewindTo(t, r, former, primary, 2) }()
		killed := false
		for !killed {
			info, err := os.Stat(big)
			if err == nil && info.Size() >= part && info.Size() < full {
				former.Lock.KillHolders()
				killed = true
				continue
			}
			select {
			case got := <-done:
				requireResult(t, got, rewind.Rewound)
				t.Skip("pg_rewind was too quick to be killed")
			case <-time.After(time.Millisecond):
			}
		}
		got := <-done
		requireResult(t, got, rewind.Failed)
		requireStage(t, former, rewind.StageStarted)
		if err := rewind.DropKept(former.Volume); err != nil {
			t.Fatal(err)
		}
		if kept, err := rewind.ListKept(former.Volume); err != nil || len(kept) != 1 {
			t.Fatalf("the WAL that a repeated rewind needs: %v, %v", kept, err)
		}
		interrupted++
		primary.Exec("update public.ledger set pad = 'meanwhile' where n % 7 = 0", "insert into public.big select g, repeat(md5(g::text), 20) from generate_series(1, 1000) g")
	}
	requireResult(t, rewindTo(t, r, former, primary, 2), rewind.Rewound)
	requireStage(t, former, rewind.StageRewound)
	followsAgain(w, former, primary, 2)
	t.Logf("interrupted %d times", interrupted)
}

// Data that was replaced up to pg_control, and of which nothing says that it is on the
// disk, is not started and not rewound again.
func TestRealRule18RewindInterruptedAtItsEndIsCopiedAgain(t *testing.T) {
	w := postgrestest.NewWorld(t, 2, nil)
	former, primary := failOver(w)
	r := newRewinder(w, former, firstTerm)
	stop := make(chan struct{})
	mark := make(chan []byte, 1)
	go func() { // the mark as it is while pg_rewind runs
		for {
			data, err := os.ReadFile(filepath.Join(former.Volume, datavolume.RewindName))
			if err == nil && strings.Contains(string(data), `"started":true`) {
				mark <- data
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	requireResult(t, rewindTo(t, r, former, primary, 2), rewind.Rewound)
	close(stop)
	if err := os.WriteFile(filepath.Join(former.Volume, datavolume.RewindName), <-mark, 0o600); err != nil {
		t.Fatal(err)
	}
	requireResult(t, rewindTo(t, r, former, primary, 2), rewind.NotPossible)
	requireStage(t, former, rewind.StageStarted)
}

// Where nothing is to be rewound, or not now, the data is not changed.
func TestRealRule18DataIsLeftAsItIs(t *testing.T) {
	w := postgrestest.NewWorld(t, 3, nil)
	former, primary := failOver(w)
	follower := w.Members[2]
	if primary == follower {
		follower = w.Members[1]
	}
	follower.Join(primary, 2)
	primary.SameContent(follower)
	refused := func(name string, m, source *postgrestest.Member, want rewind.Result, says string, led ...rewind.Term) {
		t.Run(name, func(t *testing.T) {
			before := digestData(t, m.PGData())
			got := rewindTo(t, newRewinder(w, m, led...), m, source, 2)
			if got.Result != want || !strings.Contains(got.Reason, says) {
				t.Errorf("%s: %s; want %s: %s", got.Result, got.Reason, want, says)
			}
			if diff := cmp.Diff(before, digestData(t, m.PGData())); diff != "" {
				t.Errorf("the data is changed:\n%s", diff)
			}
			requireStage(t, m, rewind.StageNone)
		})
	}
	refused("no recorded failover explains it", former, primary, rewind.Unexplained, "no recorded failover")
	refused("another timeline was led", former, primary, rewind.Unexplained, "no recorded failover", rewind.Term{Term: 2, Timeline: 2})
	refused("the source is a standby", former, follower, rewind.Failed, "does not lead", firstTerm)
	follower.Kill()
	refused("a follower is clean", follower, primary, rewind.NotNeeded, "all that the volume holds", firstTerm)
	primary.Kill()
	refused("the primary is away", former, primary, rewind.Failed, "does not answer", firstTerm)

	// A rewind that ended before it changed anything leaves a standby.
	if err := os.WriteFile(filepath.Join(former.Volume, datavolume.RewindName), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	signal := filepath.Join(former.PGData(), "standby.signal")
	_ = os.Remove(signal)
	requireStage(t, former, rewind.StagePrepared)
	requireResult(t, rewindTo(t, newRewinder(w, former, firstTerm), former, primary, 2), rewind.Failed)
	requireStage(t, former, rewind.StageNone)
	if _, err := os.Stat(signal); err != nil {
		t.Errorf("the data would lead: %v", err)
	}

	primary.Start(rolechange.Live{}) // no standby.signal: it goes on
	requireResult(t, rewindTo(t, newRewinder(w, former, firstTerm), former, primary, 2), rewind.Rewound)
	followsAgain(w, former, primary, 2)
	follower.StartStandby()
	follower.Join(primary, 2)
	primary.SameContent(follower)
}

// A primary that no longer has the WAL since the last common checkpoint is found out
// before anything is changed.
func TestRealRule18NotPossibleWithoutTheCommonWAL(t *testing.T) {
	w := postgrestest.NewWorld(t, 2, map[string]string{"wal_keep_size": "0", "max_wal_size": "2MB", "min_wal_size": "2MB"})
	former, primary := failOver(w)
	primary.Exec("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
	for range 5 {
		primary.Fill("more", 2000)
		primary.Exec("select pg_switch_wal()", "checkpoint")
	}
	got := rewindTo(t, newRewinder(w, former, firstTerm), former, primary, 2)
	requireResult(t, got, rewind.NotPossible)
	requireStage(t, former, rewind.StageNone)
	if _, err := os.Stat(filepath.Join(former.PGData(), "standby.signal")); err != nil {
		t.Errorf("the data would lead: %v", err)
	}
	former.StartStandby()
	if got := former.One("select count(*)::text from public.only_lost"); got != "5000" {
		t.Errorf("it holds %s rows", got)
	}
}

// The role for rewinds reads files, and nothing else.
func TestRealRule18RewindRoleHasTheLeastPrivileges(t *testing.T) {
	w := postgrestest.NewWorld(t, 1, nil)
	m := w.Members[0]
	m.Exec("create database shop")
	connection := m.ConnectionTo(m).ForRewind()
	run := func(sql string) error {
		conn, err := rolechange.DialUpstream(t.Context(), connection)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.Exec(t.Context(), sql).ReadAll()
		return err
	}
	if err := run("select pg_read_binary_file('PG_VERSION')"); err != nil {
		t.Error(err)
	}
	for _, sql := range []string{
		"select count(*) from public.ledger", "select rolpassword from pg_authid", "create table public.t (n int)", "checkpoint",
		"select pg_read_file('PG_VERSION')", "select pg_switch_wal()", "select pg_drop_replication_slot('x')", "set role postgres",
	} {
		if err := run(sql); err == nil || !strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "must be") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	connection.Database = "shop"
	if err := run("select 1"); err == nil || !strings.Contains(err.Error(), "pg_hba.conf rejects") {
		t.Errorf("another database: %v", err)
	}
	m.EnsureRoles()
}
