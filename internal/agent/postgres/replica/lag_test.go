package replica

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

const second = time.Second

func TestLagTracker(t *testing.T) {
	type at struct {
		time     time.Duration
		position uint64
	}
	cases := []struct {
		name     string
		samples  []at
		before   uint64 // replayed when asked for the first time, after the first sample
		now      time.Duration
		replayed uint64
		want     Lag
	}{
		{"nothing is known without a sample", nil, 0, 1 * second, 100, Lag{}},
		{"a replica that never reached a sample may be a day behind",
			[]at{{1 * second, 500}}, 100, 1 * second, 100, Lag{}},
		{"a replica that has replayed the newest sample does not lag",
			[]at{{1 * second, 500}, {2 * second, 600}}, 500, 2 * second, 600, Lag{0, true}},
		{"the lag is the age of the first position that is not replayed",
			[]at{{1 * second, 500}, {2 * second, 600}, {3 * second, 700}}, 500, 3500 * time.Millisecond, 500, Lag{1500 * time.Millisecond, true}},
		{"an idle primary is no lag, however long",
			[]at{{1 * second, 500}, {2 * second, 500}, {3 * second, 500}}, 500, 3 * second, 500, Lag{0, true}},
		{"after idling the lag begins at the write",
			[]at{{1 * second, 500}, {2 * second, 500}, {3 * second, 501}}, 500, 3200 * time.Millisecond, 500, Lag{200 * time.Millisecond, true}},
		{"what was written during a gap may be as old as the gap",
			[]at{{1 * second, 500}, {61 * second, 900}}, 500, 61 * second, 500, Lag{60 * second, true}},
		{"after a gap a replica that has replayed all does not lag",
			[]at{{1 * second, 500}, {61 * second, 900}}, 500, 61 * second, 900, Lag{0, true}},
		{"a position that falls is another primary's: nothing is known",
			[]at{{1 * second, 500}, {2 * second, 300}}, 500, 2 * second, 200, Lag{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var tracker lagTracker
			for i, s := range c.samples {
				tracker.recordSample(s.time, s.position)
				if i == 0 {
					tracker.readLag(s.time, c.before)
				}
			}
			if got := tracker.readLag(c.now, c.replayed); got != c.want {
				t.Errorf("lag is %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestReplicaRole(t *testing.T) {
	const replica, member = v1alpha1.RoleReplica, v1alpha1.RoleMember
	close, far, unknown := Lag{0, true}, Lag{lagLimit, true}, Lag{}
	cases := []struct {
		name    string
		before  string
		serving bool
		view    PrimaryView
		lag     Lag
		want    string
	}{
		{"a close replica enters", member, true, ViewServing, close, replica},
		{"a replica at its limit leaves", replica, true, ViewServing, far, member},
		{"a replica of unknown lag leaves", replica, true, ViewServing, unknown, member},
		{"a replica that does not answer leaves", replica, false, ViewServing, close, member},
		{"the primary is down: a replica stays", replica, true, ViewDown, unknown, replica},
		{"the primary is down: no replica enters", member, true, ViewDown, unknown, member},
		{"the primary is silent since a moment: a replica stays", replica, true, ViewSilent, unknown, replica},
		{"cut off from a live primary a replica leaves", replica, true, ViewCutOff, unknown, member},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := ChooseRole(c.before, c.serving, c.view, c.lag); got != c.want {
				t.Errorf("role is %s, want %s", got, c.want)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	begin := silence{since: 10 * second, view: ViewSilent}
	gone := silence{since: 10 * second, view: ViewDown, gone: true}
	cases := []struct {
		name string
		got  silence
		want PrimaryView
	}{
		{"at first it is unexplained", begin.recordLease(11*second, "1", second), ViewSilent},
		{"a renewal since then means cut off", begin.recordLease(11*second, "1", second).recordLease(12*second, "2", 0), ViewCutOff},
		{"a renewal long due means down", begin.recordLease(11*second, "1", 5*second), ViewDown},
		{"a fresh renewal past the limit means cut off", begin.recordLease(12*second, "1", second), ViewCutOff},
		{"cut off turns into down when renewals stay away",
			begin.recordLease(12*second, "1", second).recordLease(15*second, "1", 5*second), ViewDown},
		{"without the API server it is cut off after the limit", begin.recordUnreadable(12 * second), ViewCutOff},
		{"a primary that is gone is down, however fresh its renewal", gone.recordLease(12*second, "1", second), ViewDown},
		{"a primary that is gone and renews is elsewhere", gone.recordLease(12*second, "1", second).recordLease(13*second, "2", 0), ViewCutOff},
		{"a primary that is gone is down without the API server too", gone.recordUnreadable(20 * second), ViewDown},
		{"without the API server it is silent at first", begin.recordUnreadable(11 * second), ViewSilent},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.got.view != c.want {
				t.Errorf("view is %v, want %v", c.got.view, c.want)
			}
		})
	}
}

// A replica serves reads only of what is surely its primary's.
func TestFollows(t *testing.T) {
	cases := []struct {
		name string
		f    Follower
		seen server.Observation
		want bool
	}{
		{"it receives what the primary writes", Follower{before: 100, primary: lsn.Point{Timeline: 2, Position: 110}}, server.Observation{Receiving: true, Timeline: 2, Position: 120}, true},
		{"nothing is known yet", Follower{primary: lsn.Point{Timeline: 2, Position: 110}}, server.Observation{Receiving: true, Timeline: 2, Position: 110}, false},
		{"the primary is behind what it held a moment before", Follower{before: 111, primary: lsn.Point{Timeline: 2, Position: 110}}, server.Observation{Receiving: true, Timeline: 2, Position: 111}, false},
		{"the primary says nothing new of its position", Follower{before: 111, primary: lsn.Point{Timeline: 2}}, server.Observation{Receiving: true, Timeline: 2, Position: 111}, true},
		{"it receives a timeline that the primary has left", Follower{before: 100, primary: lsn.Point{Timeline: 3, Position: 110}}, server.Observation{Receiving: true, Timeline: 2, Position: 100}, false},
		{"it receives nothing, and has no more", Follower{before: 100, primary: lsn.Point{Timeline: 2, Position: 110}, tracker: lagTracker{newest: 110}}, server.Observation{Timeline: 2, Position: 110}, true},
		{"it receives nothing, and has more", Follower{before: 100, primary: lsn.Point{Timeline: 2, Position: 110}, tracker: lagTracker{newest: 110}}, server.Observation{Timeline: 2, Position: 111}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.f.FollowsPrimary(c.seen); got != c.want {
				t.Errorf("%v", got)
			}
		})
	}
}
