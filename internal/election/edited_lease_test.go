package election

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// An edit without a later revision names no member that may lead: none is elected by it,
// and a person's request counts by what the member knew before.
func TestRule5NamedMemberLeadsByWhatItKnew(t *testing.T) {
	for name, edit := range map[string]func(*lease.Record){
		"other volumes":    func(r *lease.Record) { r.Volumes = []string{"v0"} },
		"another database": func(r *lease.Record) { r.SystemIdentifier = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			edited := baseRecord
			edit(&edited)
			s, effects := newMember(t, "v1", "p2"), []Effect(nil)
			for now := 2 * second; now <= 30*second; now += 2 * second {
				if s, effects = readAt(s, now, lease.Done, "1", edited); contains[StopReceiver](effects) {
					t.Fatalf("after %s it asks for votes: %v", now, effects)
				}
			}
			if s.stalled == "" || s.lease.readable {
				t.Errorf("the edit was not found: %q", s.stalled)
			}
			s, effects = Step(s, 30*second, ForceRequest{"once"})
			if !contains[StopReceiver](effects) {
				t.Fatalf("the person's request has no effect: %v", effects)
			}
			s, _ = Step(s, 30*second, ReceiverStopped{WAL{Flushed: lease.Position{Timeline: 5, LSN: 60}, Timelines: []int64{5}}})
			_, effects = Step(s, 33*second, Tick{})
			w := find[WriteLease](t, effects).Record
			if w.HolderVolume != "v1" || w.Term != 6 || len(w.Volumes) != 3 || w.SystemIdentifier != "s" {
				t.Errorf("got %+v", w)
			}
		})
	}
}

// A claim whose answer was lost counts only as it was written.
func TestRule5EditedClaimIsGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*lease.Record)
		wins bool
	}{
		"as it was written":  {func(*lease.Record) {}, true},
		"without the volume": {func(r *lease.Record) { r.Volumes = []string{"v0", "v2"} }, false},
		"another database":   {func(r *lease.Record) { r.SystemIdentifier = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, claim := newMember(t, "v1", "p2"), baseRecord
			claim.HolderUID, claim.HolderVolume, claim.Term, claim.Timeline, claim.HighestTimeline = "p2", "v1", 6, 6, 6
			s.Phase, s.term, s.timeline, s.Disk.Wrote = Unsure, 6, 6, 6
			s.requests.pending = claim
			found := claim
			test.edit(&found)
			s, effects := readAt(s, 12*time.Second, lease.Done, "2", found)
			if wins := s.Phase == Claiming && contains[WriteLease](effects); wins != test.wins {
				t.Errorf("phase %d, %v", s.Phase, effects)
			}
		})
	}
}

// A primary that reads an edited Lease writes its own again, as a later one: members may
// have read the edited one first.
func TestRule5HolderReplacesWhatWasEdited(t *testing.T) {
	for name, test := range map[string]struct {
		edit     func(*lease.Record)
		revision int64
	}{
		"as it was":        {func(*lease.Record) {}, 0},
		"other volumes":    {func(r *lease.Record) { r.Volumes = []string{"v0", "v1"} }, 1},
		"another database": {func(r *lease.Record) { r.SystemIdentifier = "other" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, found := newPrimary(t, nil), baseRecord
			test.edit(&found)
			s.requests.outage = true
			s, effects := Step(s, 11*second, Tick{})
			find[ReadLease](t, effects)
			s, effects = Step(s, 11*second, LeaseRead{lease.Reading{Answer: lease.Done, Version: lease.Version{UID: "u", Resource: "2"}, Record: found, Sent: 11 * second, Received: 11 * second}})
			w := find[WriteLease](t, effects).Record
			if s.Phase != Leading || w.Revision != test.revision || len(w.Volumes) != 3 || w.SystemIdentifier != "s" {
				t.Errorf("phase %d, %+v", s.Phase, w)
			}
		})
	}
}
