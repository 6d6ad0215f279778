package servercontrol

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// A volume of the quorum counts whether or not its pod is known, and gets that name as
// soon as it is. A pod that left its volume acknowledges nothing for it.
func TestRule15AbsentMemberIsNamedByItsVolume(t *testing.T) {
	quorum := &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}
	for _, c := range []struct {
		name  string
		begin func(ctx context.Context, w *world)
		want  []string
	}{
		{"of a quorum that is set", func(ctx context.Context, w *world) { w.SetQuorum(ctx, 3, quorum) },
			[]string{"waits for 1 of [orders-1 holdfast_volume_v2]", "quorum 3 set"}},
		{"of a promotion", func(ctx context.Context, w *world) {
			w.Promote(ctx, elector.Promotion{Term: 6, Timeline: 5, Quorum: quorum})
		}, []string{"promotes to 5 with 1 of [orders-1 holdfast_volume_v2]", "is the primary on 5", "promoted: term 6, timeline 5"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWork(t, func(t *testing.T, w *world) {
				known := w.o.Directory.(*directory)
				known.learn("v2", "")
				w.attach(&fakeServer{})
				term, end := context.WithCancel(t.Context())
				defer end()
				c.begin(term, w)
				w.expect(t, c.want...)
				time.Sleep(3 * namesPause)
				w.expect(t)
				known.learn("v2", "orders-2")
				time.Sleep(2 * namesPause)
				w.expect(t, "waits for 1 of [orders-1 orders-2]")
				known.learn("v1", "")
				time.Sleep(2 * namesPause)
				w.expect(t, "waits for 1 of [holdfast_volume_v1 orders-2]")
				end()
				known.learn("v1", "orders-1")
				time.Sleep(2 * namesPause)
				w.expect(t)
			})
		})
	}
}

// While a change waits for the quorum, a pod that becomes known may be the one that
// has to acknowledge it.
func TestRule15ChangeThatWaitsTakesUpNewNames(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		known := w.o.Directory.(*directory)
		known.learn("v1", "")
		server := &fakeServer{hangs: true}
		w.attach(server)
		w.SetQuorum(t.Context(), 3, &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2})
		w.expect(t, "waits for 1 of [holdfast_volume_v1]")
		server.setHangs(false)
		known.learn("v1", "orders-1")
		time.Sleep(2 * namesPause)
		w.expect(t, "ended", "waits for 1 of [orders-1]", "quorum 3 set")
	})
}

// Another run of the server in the same term gets the quorum anew.
func TestRule15NextRunGetsTheQuorum(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		w.attach(&fakeServer{})
		w.SetQuorum(t.Context(), 3, &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2})
		w.expect(t, "waits for 1 of [orders-1]", "quorum 3 set")
		w.attach(&fakeServer{})
		time.Sleep(2 * namesPause)
		w.expect(t, "waits for 1 of [orders-1]")
	})
}

// A member streams by the name that the leader counts, also when that changes because the
// leader's agent is upgraded in place.
func TestRule15StandbyStreamsByTheNameThatCounts(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		known := w.o.Directory.(*directory)
		known.setCounted("orders-0")
		w.attach(&fakeServer{})
		w.Follow(leader)
		w.expect(t, "timeline 4 is on the volume", "follows on 4 as orders-0")
		time.Sleep(3 * namesPause)
		w.expect(t)
		known.setCounted("orders-0_v0")
		time.Sleep(2 * namesPause)
		w.expect(t, "timeline 4 is on the volume", "follows on 4 as orders-0_v0")
		w.StopReceiver(7)
		w.expect(t, "stops receiving", "receiver 7 stopped at 0/0")
		known.setCounted("orders-0")
		time.Sleep(2 * namesPause)
		w.expect(t)
	})
}
