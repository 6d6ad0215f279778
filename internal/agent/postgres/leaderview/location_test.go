package leaderview

import "testing"

func TestPrimaryAddress(t *testing.T) {
	type event = func(*location)
	answer := func(uid string) event { return func(w *location) { w.recordAnswer(uid) } }
	lease := func(uid, address string) event { return func(w *location) { w.recordLease(uid, address) } }
	streams := func(w *location) { w.recordStream(true) }
	broken := func(w *location) { w.recordStream(false) }
	follow := func(w *location) { w.inForce, _ = w.nextAddress() }
	begin := (*location).beginRun
	const stays = "stays"
	cases := []struct {
		name   string
		events []event
		want   string // the address to take up
	}{
		{"nothing is known", nil, stays},
		{"a primary that was silent for once is left where it is, for it streams",
			[]event{answer("a"), streams, lease("a", "10.0.0.1")}, stays},
		{"what the Lease said of a pod before is forgotten",
			[]event{answer("a"), streams, lease("a", "10.0.0.1"), answer("b"), broken}, stays},
		{"a broken stream looks where the Lease says",
			[]event{answer("a"), streams, broken, lease("b", "10.0.0.2")}, "10.0.0.2"},
		{"a broken stream looks there though the primary answers there",
			[]event{answer("a"), broken, lease("b", "10.0.0.2"), answer("b")}, "10.0.0.2"},
		{"a stream from a pod that another has replaced only looks alive",
			[]event{answer("a"), streams, lease("b", "10.0.0.2")}, "10.0.0.2"},
		{"that stays so when the other one answers",
			[]event{answer("a"), streams, lease("b", "10.0.0.2"), answer("b"), streams}, "10.0.0.2"},
		{"a stream of unknown source is left alone",
			[]event{streams, lease("b", "10.0.0.2")}, stays},
		{"a stream that began after the other answered comes from it",
			[]event{answer("a"), broken, answer("b"), streams, lease("b", "10.0.0.2")}, stays},
		{"what is in force is not taken up again",
			[]event{answer("a"), broken, lease("b", "10.0.0.2"), follow}, stays},
		{"an address that is old gives way to the name when the stream is broken",
			[]event{broken, lease("b", "10.0.0.2"), follow, answer("c"), broken}, ""},
		{"an address that is old disturbs no stream",
			[]event{broken, lease("b", "10.0.0.2"), follow, answer("c"), streams}, stays},
		{"what is no address is not taken up",
			[]event{broken, lease("b", "")}, stays},
		{"a server that starts takes up what is known",
			[]event{answer("a"), streams, lease("a", "10.0.0.1"), begin}, stays},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var w location
			for _, event := range c.events {
				event(&w)
			}
			got, due := w.nextAddress()
			if !due {
				got = stays
			}
			if got != c.want {
				t.Errorf("takes up %q, want %q: %+v", got, c.want, w)
			}
		})
	}
}
