package postgres

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
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
		want     lagReading
	}{
		{"nothing is known without a sample", nil, 0, 1 * second, 100, lagReading{}},
		{"a replica that never reached a sample may be a day behind",
			[]at{{1 * second, 500}}, 100, 1 * second, 100, lagReading{}},
		{"a replica that has replayed the newest sample does not lag",
			[]at{{1 * second, 500}, {2 * second, 600}}, 500, 2 * second, 600, lagReading{0, true}},
		{"the lag is the age of the first position that is not replayed",
			[]at{{1 * second, 500}, {2 * second, 600}, {3 * second, 700}}, 500, 3500 * time.Millisecond, 500, lagReading{1500 * time.Millisecond, true}},
		{"an idle primary is no lag, however long",
			[]at{{1 * second, 500}, {2 * second, 500}, {3 * second, 500}}, 500, 3 * second, 500, lagReading{0, true}},
		{"after idling the lag begins at the write",
			[]at{{1 * second, 500}, {2 * second, 500}, {3 * second, 501}}, 500, 3200 * time.Millisecond, 500, lagReading{200 * time.Millisecond, true}},
		{"what was written during a gap may be as old as the gap",
			[]at{{1 * second, 500}, {61 * second, 900}}, 500, 61 * second, 500, lagReading{60 * second, true}},
		{"after a gap a replica that has replayed all does not lag",
			[]at{{1 * second, 500}, {61 * second, 900}}, 500, 61 * second, 900, lagReading{0, true}},
		{"a position that falls is another primary's: nothing is known",
			[]at{{1 * second, 500}, {2 * second, 300}}, 500, 2 * second, 200, lagReading{}},
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
	close, far, unknown := lagReading{0, true}, lagReading{lagLimit, true}, lagReading{}
	cases := []struct {
		name    string
		before  string
		serving bool
		view    primaryView
		lag     lagReading
		want    string
	}{
		{"a close replica enters", member, true, viewServing, close, replica},
		{"a replica at its limit leaves", replica, true, viewServing, far, member},
		{"a replica of unknown lag leaves", replica, true, viewServing, unknown, member},
		{"a replica that does not answer leaves", replica, false, viewServing, close, member},
		{"the primary is down: a replica stays", replica, true, viewDown, unknown, replica},
		{"the primary is down: no replica enters", member, true, viewDown, unknown, member},
		{"the primary is silent since a moment: a replica stays", replica, true, viewSilent, unknown, replica},
		{"cut off from a live primary a replica leaves", replica, true, viewCutOff, unknown, member},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := chooseRole(c.before, c.serving, c.view, c.lag); got != c.want {
				t.Errorf("role is %s, want %s", got, c.want)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	begin := silence{since: 10 * second, view: viewSilent}
	gone := silence{since: 10 * second, view: viewDown, gone: true}
	cases := []struct {
		name string
		got  silence
		want primaryView
	}{
		{"at first it is unexplained", begin.recordLease(11*second, "1", second), viewSilent},
		{"a renewal since then means cut off", begin.recordLease(11*second, "1", second).recordLease(12*second, "2", 0), viewCutOff},
		{"a renewal long due means down", begin.recordLease(11*second, "1", 5*second), viewDown},
		{"a fresh renewal past the limit means cut off", begin.recordLease(12*second, "1", second), viewCutOff},
		{"cut off turns into down when renewals stay away",
			begin.recordLease(12*second, "1", second).recordLease(15*second, "1", 5*second), viewDown},
		{"without the API server it is cut off after the limit", begin.recordUnreadable(12 * second), viewCutOff},
		{"a primary that is gone is down, however fresh its renewal", gone.recordLease(12*second, "1", second), viewDown},
		{"a primary that is gone and renews is elsewhere", gone.recordLease(12*second, "1", second).recordLease(13*second, "2", 0), viewCutOff},
		{"a primary that is gone is down without the API server too", gone.recordUnreadable(20 * second), viewDown},
		{"without the API server it is silent at first", begin.recordUnreadable(11 * second), viewSilent},
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
		f    follower
		seen serverObservation
		want bool
	}{
		{"it receives what the primary writes", follower{before: 100, primary: lsn.Point{Timeline: 2, Position: 110}}, serverObservation{Receiving: true, Timeline: 2, Position: 120}, true},
		{"nothing is known yet", follower{primary: lsn.Point{Timeline: 2, Position: 110}}, serverObservation{Receiving: true, Timeline: 2, Position: 110}, false},
		{"the primary is behind what it held a moment before", follower{before: 111, primary: lsn.Point{Timeline: 2, Position: 110}}, serverObservation{Receiving: true, Timeline: 2, Position: 111}, false},
		{"the primary says nothing new of its position", follower{before: 111, primary: lsn.Point{Timeline: 2}}, serverObservation{Receiving: true, Timeline: 2, Position: 111}, true},
		{"it receives a timeline that the primary has left", follower{before: 100, primary: lsn.Point{Timeline: 3, Position: 110}}, serverObservation{Receiving: true, Timeline: 2, Position: 100}, false},
		{"it receives nothing, and has no more", follower{before: 100, primary: lsn.Point{Timeline: 2, Position: 110}, tracker: lagTracker{newest: 110}}, serverObservation{Timeline: 2, Position: 110}, true},
		{"it receives nothing, and has more", follower{before: 100, primary: lsn.Point{Timeline: 2, Position: 110}, tracker: lagTracker{newest: 110}}, serverObservation{Timeline: 2, Position: 111}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := c.f.followsPrimary(c.seen); got != c.want {
				t.Errorf("%v", got)
			}
		})
	}
}
