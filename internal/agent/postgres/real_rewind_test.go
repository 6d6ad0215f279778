//go:build postgres

package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rewind"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// load writes to a primary until it is ended: rows of its own, and changes of old ones.
func (r *run) load() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for n := range 2 {
		running.Go(func() {
			s := server.NewSession(r.o.RunDir, r.o.Port, fmt.Sprintf("load-%d", n))
			defer s.Close()
			for clock.Sleep(ctx, 5*time.Millisecond) && ctx.Err() == nil {
				_ = s.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
					_, err := c.Exec(ctx, "insert into public.ledger (tag, pad) select 'load', repeat(md5(random()::text), 8) from generate_series(1, 200)")
					if err == nil {
						_, err = c.Exec(ctx, "update public.ledger set pad = md5(random()::text) where n in (select (random() * 20000)::int from generate_series(1, 20))")
					}
					return err
				})
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// succeeded has the first member lead under load, and lose what it wrote last to its
// successor, which takes writes when this returns.
func (w *world) succeeded(parameters map[string]string, store *realStore) (volumes []string, primary *run) {
	w.t.Helper()
	for range w.agents {
		volumes = append(volumes, w.t.TempDir())
	}
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = parameters })
	former, next := w.start(0, volumes[0], "uid-0"), w.start(1, volumes[1], "uid-1")
	former.untilRole(v1alpha1.RolePrimary)
	former.fill("common", "20000")
	next.untilRole(v1alpha1.RoleReplica)
	next.sameContent(former)
	others := []*run{next}
	for n := 2; n < len(volumes); n++ {
		others = append(others, w.start(n, volumes[n], fmt.Sprintf("uid-%d", n)))
	}
	former.until("all may lead", func(s agentapi.Status) bool {
		e := readReplication(s).Election
		return e != nil && len(e.MayLead) == len(volumes)
	})
	for _, m := range others {
		m.untilRole(v1alpha1.RoleReplica)
		m.stop()
	}
	if store != nil {
		store.down()
	}
	former.exec("create table public.only_lost as select n, repeat(md5(n::text), 4) pad from generate_series(1, 5000) n", "select pg_switch_wal()")
	endLoad := former.load()
	time.Sleep(time.Second)
	former.o.StopTimeout = 0 // no time for a shutdown in order
	former.stop()
	endLoad()
	if store != nil {
		store.up()
	}
	primary = w.start(1, volumes[1], "uid-1b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.fill("new", "1000")
	return volumes, primary
}

// witness holds which directory the data was in.
const witness = ".data_directory"

func leaveWitness(t *testing.T, volume string) {
	t.Helper()
	info, err := os.Stat(filepath.Join(volume, datavolume.DataName))
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(volume, witness), fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino))
}

// wasCopied says whether the data of a volume is in another directory since.
func wasCopied(t *testing.T, volume string) bool {
	t.Helper()
	before, err := os.ReadFile(filepath.Join(volume, witness))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(volume, datavolume.DataName))
	if err != nil {
		t.Fatal(err)
	}
	return string(before) != fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)
}

// requireRejoined waits until a former primary follows, and compares what it holds.
func (r *run) requireRejoined(primary *run, volume string, copied bool) {
	r.t.Helper()
	r.untilRole(v1alpha1.RoleReplica)
	primary.fill("after", "100")
	r.sameContent(primary)
	if got := wasCopied(r.t, volume); got != copied {
		r.t.Errorf("copied: %t, want %t", got, copied)
	}
	r.until("votes again", func(agentapi.Status) bool { return !r.readView().Rewinding })
	if got := r.query("select count(*)::text from pg_class where relname = 'only_lost'"); got != "0" {
		r.t.Error("a table that was lost is there")
	}
}

// untilKeptIsDropped waits until nothing is kept of what was dropped.
func untilKeptIsDropped(t *testing.T, volume string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		kept, err := rewind.ListKept(volume)
		if err == nil && len(kept) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still kept: %v, %v", kept, err)
		}
	}
}

// A former primary that was written to when it ended is rewound to its successor, which
// is written to all the time, and the WAL that only it had is archived.
func TestRealRule18FormerPrimaryIsRewoundUnderLoad(t *testing.T) {
	w := newWorld(t, 2)
	store := w.archives()
	volumes, primary := w.succeeded(nil, store)
	led, err := datavolume.ReadLeader(volumes[0])
	if err != nil {
		t.Fatal(err)
	}
	leaveWitness(t, volumes[0])
	endLoad := primary.load()
	again := w.start(0, volumes[0], "uid-0b")
	again.until("rewinds", func(s agentapi.Status) bool {
		return s.State == agentapi.StateRewinding && strings.Contains(s.Message, "orders-1")
	})
	again.untilRole(v1alpha1.RoleReplica)
	endLoad()
	again.requireRejoined(primary, volumes[0], false)
	untilKeptIsDropped(t, volumes[0])
	if again.rejoin.rewound.Load() != 1 || again.rejoin.copied.Load() != 0 {
		t.Errorf("counted %d rewinds and %d copies", again.rejoin.rewound.Load(), again.rejoin.copied.Load())
	}
	// The segment in which they parted is whole in the former primary's WAL alone.
	left := primary.promoted.Load().Fork
	name := wal.Segment{Timeline: uint32(led.Timeline), Number: left.Position / (16 << 20)}.Name(16 << 20)
	stored := strings.Join(objects(t, store.dir), " ")
	if !strings.Contains(stored, name+".zst") || !strings.Contains(stored, name+".partial.zst") {
		t.Errorf("the archive lacks %s, whole and as the successor has it: %s", name, stored)
	}
	// And it may lead again, with all that the other one had.
	primary.stop()
	again.untilRole(v1alpha1.RolePrimary)
	again.fill("again", "10")
}

// Data that was rewound streams under a name that no commit counts on, until it is consistent
// and its member votes. After that it streams under its member's name.
func TestRealRule15RewoundDataAcknowledgesNothingBeforeItVotes(t *testing.T) {
	w := newWorld(t, 2)
	volumes, primary := w.succeeded(nil, nil)
	endLoad := primary.load()
	defer endLoad()
	again := w.start(0, volumes[0], "uid-0b")
	rewound := false
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		names := primary.query("select coalesce(string_agg(application_name, ' '), '') from pg_stat_replication")
		mark, err := datavolume.FindRewindMark(volumes[0])
		if err != nil {
			t.Fatal(err)
		}
		rewound = rewound || strings.Contains(names, settings.RewoundApplication)
		if strings.Contains(names, "orders-0") {
			if mark != "" || again.readView().Rewinding {
				t.Errorf("data that is not consistent streams as %s", names)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it never streams: %q", names)
		}
	}
	if !rewound {
		t.Error("the stream of data that is not consistent was never there")
	}
	again.untilRole(v1alpha1.RoleReplica)
}

// imageAt is the volume of a member at a stage of its rewind, as a machine leaves it that
// ends then. The member ends as well.
func (r *run) imageAt(volume string, stage rewind.Stage) string {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		progress, err := rewind.ReadProgress(volume)
		if err != nil || progress.Stage != stage || r.Lock == nil {
			continue
		}
		for range 3 { // those that begin meanwhile, too
			for _, pid := range r.Lock.Holders() {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}
		image := filepath.Join(r.t.TempDir(), "image")
		err = exec.Command("cp", "-a", volume, image).Run() // the agent itself still runs
		at, stageErr := rewind.ReadProgress(image)
		if err != nil || stageErr != nil || at.Stage != stage {
			for _, pid := range r.Lock.Holders() {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
			continue
		}
		r.Lock.KillHolders()
		r.o.StopTimeout = 0
		r.stop()
		return image
	}
	r.t.Fatalf("never at stage %d", stage)
	return ""
}

// A machine that ends at any point of a rewind leaves data that is rewound again, or goes
// on, and is not copied.
func TestRealRule18RewindIsInterruptedAtAnyPoint(t *testing.T) {
	w := newWorld(t, 2)
	volumes, primary := w.succeeded(nil, nil)
	primary.exec("create table public.big as select n, repeat(md5(n::text), 20) pad from generate_series(1, 60000) n")
	endLoad := primary.load()
	volume := volumes[0]
	for _, stage := range []rewind.Stage{rewind.StagePrepared, rewind.StageStarted, rewind.StageRewound} {
		volume = w.start(0, volume, fmt.Sprintf("uid-0-%d", stage)).imageAt(volume, stage)
		if election, err := os.ReadFile(filepath.Join(volume, datavolume.ElectionName)); err != nil || !strings.Contains(string(election), `"rewinding":true`) {
			t.Errorf("at stage %d the election does not know of the rewind: %s, %v", stage, election, err)
		}
	}
	leaveWitness(t, volume)
	last := w.start(0, volume, "uid-0-last")
	last.untilRole(v1alpha1.RoleReplica)
	endLoad()
	last.requireRejoined(primary, volume, false)
	untilKeptIsDropped(t, volume)
}

// Data that cannot be rewound, since the successor has not kept the WAL since they parted,
// is copied beside, and what it replaces is kept until the copy streams.
func TestRealRule18CopiedWhereNoRewindIsPossible(t *testing.T) {
	w := newWorld(t, 2)
	volumes, primary := w.succeeded(map[string]string{"max_wal_size": "32MB", "min_wal_size": "32MB"}, nil)
	primary.exec("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
	for range 6 {
		primary.fill("more", "40000")
		primary.exec("select pg_switch_wal()", "checkpoint")
	}
	leaveWitness(t, volumes[0])
	again := w.start(0, volumes[0], "uid-0b")
	again.until("copies", func(s agentapi.Status) bool {
		return s.State == agentapi.StateCloning && strings.Contains(s.Message, "cannot be rewound: the primary no longer has the WAL")
	})
	again.requireRejoined(primary, volumes[0], true)
	if again.rejoin.copied.Load() != 1 {
		t.Errorf("counted %d copies", again.rejoin.copied.Load())
	}
}

// The primary fails whose files a rewind has begun to take. The rewind is not repeated with
// the next one, whose files may lack what the data has by now: the data is copied.
func TestRealRule18PrimaryFailsDuringTheRewind(t *testing.T) {
	w := newWorld(t, 3)
	volumes, primary := w.succeeded(nil, nil)
	third := w.start(2, volumes[2], "uid-2b")
	third.untilRole(v1alpha1.RoleReplica)
	third.sameContent(primary)
	image := w.start(0, volumes[0], "uid-0b").imageAt(volumes[0], rewind.StageStarted)
	primary.stop()
	third.untilRole(v1alpha1.RolePrimary)
	third.fill("newer", "100")

	leaveWitness(t, image)
	again := w.start(0, image, "uid-0c")
	again.until("copies", func(s agentapi.Status) bool {
		return s.State == agentapi.StateCloning && strings.Contains(s.Message, "cannot be repeated: it began with a primary on timeline")
	})
	again.requireRejoined(third, image, true)
	if again.rejoin.rewound.Load() != 0 {
		t.Error("it was rewound to another primary")
	}
	untilKeptIsDropped(t, image)
}

// Without disk space for the WAL that it drops, a rewind changes nothing. The member is held
// and votes, and it is rewound once the volume is larger.
func TestRealRule18RewindWaitsForDiskSpace(t *testing.T) {
	w := newWorld(t, 2)
	volumes, primary := w.succeeded(nil, nil)
	leaveWitness(t, volumes[0])
	small := &smallVolume{}
	small.free.Store(dataspace.MinimumFree + 1)
	w.spaces = map[int]func(string) diskspace.Space{0: small.space}
	again := w.start(0, volumes[0], "uid-0b")
	status := again.until("held", func(s agentapi.Status) bool { return s.State == agentapi.StateHeld })
	if status.Hold != agentapi.HoldVolumeFull || status.DiskSpaceNeeded <= dataspace.MinimumFree || !strings.Contains(status.Message, "keeps the WAL that it drops") {
		t.Errorf("held: %+v", status)
	}
	for end := time.Now().Add(time.Minute); again.readView().Rewinding; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a member whose data is whole does not vote")
		}
	}
	kept, err := rewind.ListKept(volumes[0])
	mark, markErr := datavolume.FindRewindMark(volumes[0])
	if err != nil || markErr != nil || mark != "" || len(kept) > 0 {
		t.Errorf("there are %q and %q: %v, %v", mark, kept, err, markErr)
	}
	small.free.Store(9 << 30)
	again.requireRejoined(primary, volumes[0], false)
}

// The primary that data was rewound to fails before it is consistent, and the next one
// lacks what that one wrote last: the data is copied. Until then it neither votes nor leads.
func TestRealRule18PrimaryFailsAfterTheRewind(t *testing.T) {
	w := newWorld(t, 3)
	volumes, primary := w.succeeded(nil, nil)
	third := w.start(2, volumes[2], "uid-2b")
	third.untilRole(v1alpha1.RoleReplica)
	third.sameContent(primary)
	third.stop()
	endLoad := primary.load()
	image := w.start(0, volumes[0], "uid-0b").imageAt(volumes[0], rewind.StageRewound)
	primary.o.StopTimeout = 0
	primary.stop()
	endLoad()

	leaveWitness(t, image)
	again := w.start(0, image, "uid-0c")
	again.until("waits", func(s agentapi.Status) bool {
		return s.State == agentapi.StateWaiting && strings.Contains(s.Message, "the data was rewound, and is consistent once")
	})
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if view := again.readView(); !view.Rewinding || view.Phase != election.Standby {
			t.Fatalf("data that is not consistent takes part in an election: %+v", view)
		}
	}
	third = w.start(2, volumes[2], "uid-2c")
	third.untilRole(v1alpha1.RolePrimary)
	again.until("copies", func(s agentapi.Status) bool {
		return s.State == agentapi.StateCloning && strings.Contains(s.Message, "has failed")
	})
	again.requireRejoined(third, image, true)
	untilKeptIsDropped(t, image)
}
