package servercontrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recoverywatch"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// trace records what a server was asked and what was reported, in order.
type trace struct {
	mu    sync.Mutex
	lines []string
}

func (r *trace) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// take is what was added since it was called last.
func (r *trace) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

// fakeServer does what it is asked at once, or fails, or hangs until the command ends.
type fakeServer struct {
	*trace
	held    rolechange.HeldWAL
	primary *lsn.Point

	mu       sync.Mutex
	failures []error // of the next calls that change the server
	hangs    bool
	segments int // that a recovery replays, one a second
}

func (s *fakeServer) act(ctx context.Context, format string, args ...any) error {
	s.add(format, args...)
	s.mu.Lock()
	hangs := s.hangs
	var failure error
	if len(s.failures) > 0 {
		failure, s.failures = s.failures[0], s.failures[1:]
	}
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		s.add("ended")
		return ctx.Err()
	}
	return failure
}

// readMark shows progress while segments are left.
func (s *fakeServer) readMark() recoverywatch.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments = max(s.segments-1, 0)
	return recoverywatch.Mark{Bytes: uint64(s.segments)} //nolint:gosec // not negative
}

func (s *fakeServer) setHangs(hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

func (s *fakeServer) MeasureWAL(context.Context) (rolechange.HeldWAL, error) { return s.held, nil }

func (s *fakeServer) ReadProgress(context.Context) (rolechange.Progress, error) {
	if s.primary == nil {
		return rolechange.Progress{}, errors.New("it is a standby")
	}
	return rolechange.Progress{Own: *s.primary}, nil
}

func (s *fakeServer) StopReceiver(ctx context.Context) (rolechange.HeldWAL, error) {
	return s.held, s.act(ctx, "stops receiving")
}

func (s *fakeServer) Follow(ctx context.Context, t rolechange.Target) error {
	if t.Connection.Application != "" {
		return s.act(ctx, "follows on %d as %s", t.Timeline, t.Connection.Application)
	}
	return s.act(ctx, "follows on %d", t.Timeline)
}

func (s *fakeServer) Promote(ctx context.Context, p rolechange.Promotion) (rolechange.Promoted, error) {
	return rolechange.Promoted{Timeline: p.Timeline}, s.act(ctx, "promotes to %d with %d of %v", p.Timeline, p.Quorum.Number, p.Quorum.Members)
}

func (s *fakeServer) SetQuorum(ctx context.Context, q rolechange.Quorum) error {
	return s.act(ctx, "waits for %d of %v", q.Number, q.Members)
}

func (s *fakeServer) Stop(ctx context.Context) (lsn.Point, error) {
	return lsn.Point{Timeline: 5, Position: 0x500}, s.act(ctx, "stops")
}

// fakeReports records what is reported.
type fakeReports struct {
	*trace
	refuse error
}

func (r fakeReports) Volume() string { return "v0" }

func (r fakeReports) RecordTimeline(_ context.Context, timeline int64) error {
	r.add("timeline %d is on the volume", timeline)
	return r.refuse
}

func (r fakeReports) ReportReceiverStopped(id int64, w election.WAL) {
	r.add("receiver %d stopped at %d/%X", id, w.Flushed.Timeline, w.Flushed.LSN)
}
func (r fakeReports) ReportPromoted(term, timeline int64) {
	r.add("promoted: term %d, timeline %d", term, timeline)
}
func (r fakeReports) ReportFailed(term int64) { r.add("term %d failed", term) }
func (r fakeReports) ReportStopped(term int64, end lease.Position) {
	r.add("term %d ended at %d/%X", term, end.Timeline, end.LSN)
}
func (r fakeReports) ReportFenced(id int64)    { r.add("fence %d done", id) }
func (r fakeReports) ReportQuorumSet(id int64) { r.add("quorum %d set", id) }

// directory knows the streams of volumes.
type directory struct {
	mu   sync.Mutex
	pods map[string]string
	// counted is the name that the leader counts for this member.
	counted string
}

// setCounted sets the name that the leader counts for this member.
func (d *directory) setCounted(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counted = name
}

func (d *directory) connection(elector.Leader) settings.PrimaryConnection {
	d.mu.Lock()
	defer d.mu.Unlock()
	return settings.PrimaryConnection{Application: d.counted}
}

func (d *directory) FindStream(volume string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pod, known := d.pods[volume]
	return pod, known
}

// learn has a pod run on a volume; empty for none.
func (d *directory) learn(volume, pod string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pods[volume] = pod; pod == "" {
		delete(d.pods, volume)
	}
}

// world is a control whose commands are done, by a clock of its own.
type world struct {
	*Control
	*trace
	volume string
	stop   context.CancelFunc
}

func newControl(t *testing.T) (*Control, *trace, string) {
	t.Helper()
	recorded, volume := &trace{}, t.TempDir()
	known := &directory{pods: map[string]string{"v1": "orders-1", "v2": "orders-2"}}
	c := New(Options{
		Log: slog.New(slog.DiscardHandler), Volume: volume, PGData: filepath.Join(volume, datavolume.DataName),
		Connection: known.connection, Directory: known,
	})
	c.SetReports(fakeReports{trace: recorded})
	return c, recorded, volume
}

// inWork runs a test beside a control that works.
func inWork(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, recorded, volume := newControl(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Work(ctx)
		}()
		test(t, &world{c, recorded, volume, stop})
		stop()
		<-ended
	})
}

// attach gives the control a server; end ends its run.
func (w *world) attach(server *fakeServer) (end func()) {
	server.trace = w.trace
	ended := make(chan struct{})
	w.Attach(&Run{
		Server: server, Ended: ended,
		BecomePrimary: func(p rolechange.Promoted) { w.add("is the primary on %d", p.Timeline) },
		GiveUp:        func(reason error) { w.add("gives up: %v", reason) },
		ReadMark:      server.readMark,
	})
	return func() {
		close(ended)
		w.Detach()
	}
}

func (w *world) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, w.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

var leader = elector.Leader{UID: "p1", Pod: "orders-1", Volume: "v1", Term: 4, Timeline: 4}

// A newer command ends the one at work, and replaces one that waits.
func TestNewerCommandReplacesTheOneAtWork(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		server := &fakeServer{hangs: true, held: rolechange.HeldWAL{End: lsn.Point{Timeline: 4, Position: 0x400}}}
		w.attach(server)
		w.Follow(leader)
		w.expect(t, "timeline 4 is on the volume", "follows on 4")
		if following, is := w.ReadFollowing(); !is || following != leader {
			t.Errorf("follows %+v, %v", following, is)
		}
		server.setHangs(false)
		w.StopReceiver(7)
		w.expect(t, "ended", "stops receiving", "receiver 7 stopped at 4/400")
		if following, is := w.ReadFollowing(); is {
			t.Errorf("still follows %+v", following)
		}
	})
}

// Of the commands that come before the first is begun, the newest is done.
func TestNewestOfWaitingCommandsIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, recorded, volume := newControl(t)
		ctx, stop := context.WithCancel(t.Context())
		w := &world{c, recorded, volume, stop}
		w.attach(&fakeServer{})
		w.Follow(leader)
		w.StopReceiver(1)
		w.StopReceiver(2)
		go c.Work(ctx)
		w.expect(t, "stops receiving", "receiver 2 stopped at 0/0")
		stop()
		synctest.Wait()
	})
}

// What fails and may pass is tried again, and a new run follows the same leader.
func TestFollowIsTriedAgain(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		end := w.attach(&fakeServer{failures: []error{&rolechange.FollowError{Problem: rolechange.NoAnswer, Err: errors.New("refused")}}})
		w.Follow(leader)
		time.Sleep(2 * retryPause)
		w.expect(t, "timeline 4 is on the volume", "follows on 4", "timeline 4 is on the volume", "follows on 4")
		end()
		w.expect(t)
		w.attach(&fakeServer{})
		w.expect(t, "timeline 4 is on the volume", "follows on 4")
	})
}

// Data that cannot follow ends its run, once.
func TestDataThatCannotFollowIsGivenUp(t *testing.T) {
	for name, failure := range map[string]error{
		"diverged":        &rolechange.DivergedError{},
		"another system":  &rolechange.OtherSystemError{},
		"WAL was removed": &rolechange.FollowError{Problem: rolechange.WALRemoved, Err: errors.New("gone")},
	} {
		t.Run(name, func(t *testing.T) {
			inWork(t, func(t *testing.T, w *world) {
				w.attach(&fakeServer{failures: []error{failure}})
				w.Follow(leader)
				time.Sleep(5 * retryPause)
				w.expect(t, "timeline 4 is on the volume", "follows on 4", "gives up: "+failure.Error())
			})
		})
	}
}

// Nothing of a timeline is received before it is on the volume.
func TestRule9NothingIsReceivedBeforeItsTimelineIsRecorded(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		w.SetReports(fakeReports{w.trace, errors.New("the volume hangs")})
		w.attach(&fakeServer{})
		w.Follow(leader)
		w.expect(t, "timeline 4 is on the volume")
		w.Follow(elector.Leader{Volume: "v1", Term: 4}) // its pod is not known yet
		w.expect(t)
	})
}

func TestPromoteReportsItsOutcome(t *testing.T) {
	promotion := elector.Promotion{Term: 6, Timeline: 5, Quorum: &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}}
	t.Run("done", func(t *testing.T) {
		inWork(t, func(t *testing.T, w *world) {
			w.attach(&fakeServer{})
			w.Promote(t.Context(), promotion)
			w.expect(t, "promotes to 5 with 1 of [orders-1 orders-2]", "is the primary on 5", "promoted: term 6, timeline 5")
			if w.LedTerm() != 6 {
				t.Errorf("led term %d", w.LedTerm())
			}
			if record, err := datavolume.ReadLeader(w.volume); err != nil || record.Term != 6 || record.Timeline != 5 {
				t.Errorf("on the volume: %+v, %v", record, err)
			}
		})
	})
	t.Run("the server fails", func(t *testing.T) {
		inWork(t, func(t *testing.T, w *world) {
			w.attach(&fakeServer{failures: []error{errors.New("no")}})
			w.Promote(t.Context(), promotion)
			w.expect(t, "promotes to 5 with 1 of [orders-1 orders-2]", "term 6 failed")
			if w.LedTerm() != 0 {
				t.Errorf("led term %d", w.LedTerm())
			}
		})
	})
	t.Run("no server comes", func(t *testing.T) {
		inWork(t, func(t *testing.T, w *world) {
			w.Promote(t.Context(), promotion)
			time.Sleep(startPatience / 2)
			w.expect(t)
			time.Sleep(startPatience)
			w.expect(t, "term 6 failed")
		})
	})
	t.Run("a server comes after a long recovery", func(t *testing.T) {
		inWork(t, func(t *testing.T, w *world) {
			w.Promote(t.Context(), promotion)
			for range 20 {
				time.Sleep(startPatience / 2)
				w.ReportProgress()
			}
			w.expect(t)
			w.attach(&fakeServer{})
			w.expect(t, "promotes to 5 with 1 of [orders-1 orders-2]", "is the primary on 5", "promoted: term 6, timeline 5")
		})
	})
	t.Run("it hangs", func(t *testing.T) {
		inWork(t, func(t *testing.T, w *world) {
			w.attach(&fakeServer{hangs: true, segments: 600})
			w.Promote(t.Context(), promotion)
			time.Sleep(600*time.Second + recoverywatch.Limit - 5*time.Second)
			w.expect(t, "promotes to 5 with 1 of [orders-1 orders-2]")
			time.Sleep(10 * time.Second)
			w.expect(t, "term 6 failed", "ended", "term 6 failed")
		})
	})
	t.Run("a pod of the quorum is not known", func(t *testing.T) {
		inWork(t, func(t *testing.T, w *world) {
			w.attach(&fakeServer{})
			unknown := promotion
			unknown.Quorum = &lease.Quorum{Volumes: []string{"v0", "v1", "v9"}, Write: 2}
			w.Promote(t.Context(), unknown)
			w.expect(t, "promotes to 5 with 1 of [orders-1 holdfast_volume_v9]", "is the primary on 5", "promoted: term 6, timeline 5")
		})
	})
	t.Run("the term ends", func(t *testing.T) {
		inWork(t, func(t *testing.T, w *world) {
			w.attach(&fakeServer{hangs: true})
			term, end := context.WithCancel(t.Context())
			w.Promote(term, promotion)
			w.expect(t, "promotes to 5 with 1 of [orders-1 orders-2]")
			end()
			w.expect(t, "ended", "term 6 failed")
		})
	})
}

func TestRule15QuorumIsSetUntilItsTermEnds(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		w.attach(&fakeServer{failures: []error{errors.New("a standby has not flushed it")}})
		term, end := context.WithCancel(t.Context())
		w.SetQuorum(term, 3, &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2})
		time.Sleep(2 * retryPause)
		w.expect(t, "waits for 1 of [orders-1]", "waits for 1 of [orders-1]", "quorum 3 set")
		w.SetQuorum(term, 4, nil)
		w.expect(t, "waits for 0 of []", "quorum 4 set")
		w.attach(&fakeServer{hangs: true})
		w.SetQuorum(term, 5, &lease.Quorum{Volumes: []string{"v0", "v2"}, Write: 2})
		time.Sleep(5 * retryPause)
		end()
		w.expect(t, "waits for 1 of [orders-2]", "ended")
	})
}

func TestStopServerReportsItsOutcome(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		w.StopServer(6)
		w.expect(t, "term 6 failed") // no server runs
		w.attach(&fakeServer{})
		w.StopServer(6)
		w.expect(t, "stops", "term 6 ended at 5/500")
		if !w.IsStopping() {
			t.Error("it is not known that the server was stopped on request")
		}
		w.attach(&fakeServer{failures: []error{&rolechange.UncleanStopError{}}})
		if w.IsStopping() {
			t.Error("a new run is being stopped")
		}
		w.StopServer(7)
		w.expect(t, "stops", "term 7 failed")
		w.attach(&fakeServer{hangs: true}) // a shutdown that hangs has a deadline
		w.StopServer(8)
		w.expect(t, "stops")
		time.Sleep(stopPatience)
		w.expect(t, "ended", "term 8 failed")
	})
}

// A server that is on its way is waited for; without one, the volume is measured.
func TestReadWAL(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		if got, err := w.ReadWAL(t.Context()); err == nil || !strings.Contains(err.Error(), "lock") {
			t.Errorf("measured without the lock on the volume: %+v, %v", got, err)
		}
		lock, err := volumelock.LockVolume(w.volume)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
		w.SetLock(lock)
		if got, err := w.ReadWAL(t.Context()); err != nil || got.Flushed != (lease.Position{}) || got.Timelines != nil {
			t.Errorf("an empty volume holds %+v, %v", got, err)
		}
		w.StopReceiver(1)
		w.expect(t, "receiver 1 stopped at 0/0")

		w.BeginStart(0)
		w.StopReceiver(2)
		w.expect(t)
		w.attach(&fakeServer{held: rolechange.HeldWAL{End: lsn.Point{Timeline: 4, Position: 0x400}, Reach: 0x450, Timelines: []int64{1, 4}}})
		w.expect(t, "stops receiving", "receiver 2 stopped at 4/400")
		got, err := w.ReadWAL(t.Context())
		want := election.WAL{Flushed: lease.Position{Timeline: 4, LSN: 0x400}, Reach: 0x450, Timelines: []int64{1, 4}}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("(-want +got):\n%s %v", diff, err)
		}
		w.attach(&fakeServer{primary: &lsn.Point{Timeline: 5, Position: 0x500}})
		if got, err := w.ReadWAL(t.Context()); err != nil || got.Flushed != (lease.Position{Timeline: 5, LSN: 0x500}) {
			t.Errorf("a primary holds %+v, %v", got, err)
		}

		w.BeginStart(0)
		w.Detach()
		w.BeginStart(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := w.ReadWAL(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while a server starts: %+v, %v", got, err)
		}
	})
}

// A fence ends the command at work, and kills what has inherited the lock on the volume
// before it returns. What starts meanwhile must not stay.
func TestRule6FenceEndsEverything(t *testing.T) {
	c, recorded, volume := newControl(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Work(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	c.Fence(1) // nothing has run yet
	if diff := cmp.Diff([]string{"fence 1 done"}, recorded.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	lock, err := volumelock.LockVolume(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	c.SetLock(lock)
	inherited, err := lock.ForDatabase()
	if err != nil {
		t.Fatal(err)
	}
	database := exec.Command("sleep", "1000")
	database.ExtraFiles = []*os.File{inherited}
	if err := database.Start(); err != nil {
		t.Fatal(err)
	}
	died := make(chan struct{})
	go func() {
		_ = database.Wait()
		close(died)
	}()
	if err := inherited.Close(); err != nil {
		t.Fatal(err)
	}
	fences, _ := c.BeginStart(0)
	w := &world{c, recorded, volume, stop}
	w.attach(&fakeServer{hangs: true})
	w.Follow(leader)
	untilRecorded(t, recorded, "follows on 4")
	if c.IsFencedSince(fences) {
		t.Error("fenced before it was")
	}
	w.Fence(2)
	if !c.IsFencedSince(fences) {
		t.Error("a server that was started before the fence may stay")
	}
	if following, is := c.ReadFollowing(); is {
		t.Errorf("still follows %+v", following)
	}
	<-died
	untilRecorded(t, recorded, "ended", "fence 2 done")
	if alive, err := lock.DatabaseAlive(); alive || err != nil {
		t.Errorf("a process is left: %v", err)
	}
}

// untilRecorded waits until all lines were recorded.
func untilRecorded(t *testing.T, recorded *trace, want ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, line := range want {
		missing[line] = true
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		for _, line := range recorded.take() {
			delete(missing, line)
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never recorded: %v", missing)
		}
	}
}
