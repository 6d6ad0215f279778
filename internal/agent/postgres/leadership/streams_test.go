package leadership

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// Whose streams are of members that hold what the leader wrote: a pod's earlier process
// that streams on, a copy and a subscriber are none.
func TestRule15StreamIsThatOfAVolume(t *testing.T) {
	for _, c := range []struct {
		name    string
		set     func(*fakePeers)
		streams []string
		want    []string
	}{
		{"of each volume", func(*fakePeers) {}, []string{"orders-1_v1", "orders-2_v2"}, []string{"orders-1", "orders-2"}},
		{"of the volume before", func(p *fakePeers) { p.set("orders-2", "v9", "") }, []string{"orders-1_v1", "orders-2_v2"}, []string{"orders-1"}},
		{"of an agent that takes the leader for an older one", func(*fakePeers) {}, []string{"orders-1", "orders-2_v2"}, []string{"orders-2"}},
		{"of an older agent", func(p *fakePeers) { p.setOlder("orders-1", "v1", "7") }, []string{"orders-1", "orders-2_v2"}, []string{"orders-1", "orders-2"}},
		{"of an older agent before, on the volume of a newer one", func(p *fakePeers) { p.set("orders-2", "v9", "") }, []string{"orders-2"}, nil},
		{"of a volume that is not known", func(p *fakePeers) { p.set("orders-2", "", "") }, []string{"orders-2", "orders-2_v2"}, nil},
		{"of a pod that is not declared", func(p *fakePeers) { p.set("orders-3", "v3", "7") }, []string{"orders-3", "orders-3_v3"}, nil},
		{"copies and subscribers", func(*fakePeers) {}, []string{settings.CopyApplication, settings.RewoundApplication, "report", ""}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, peers := newDirectory("orders-0", "orders-1", "orders-2")
			peers.set("orders-1", "v1", "7")
			peers.set("orders-2", "v2", "7")
			c.set(peers)
			d.askMembers(t.Context())
			if diff := cmp.Diff(c.want, d.ListStreaming(c.streams)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A pod's earlier process streams on, on its own volume, and its next pod begins on an
// empty one: that one neither may lead nor acknowledges anything.
func TestRule15EmptyVolumeDoesNotJoinByAnEarlierStream(t *testing.T) {
	d, peers := newDirectory("orders-0", "orders-1", "orders-2")
	peers.set("orders-1", "v1", "7")
	peers.set("orders-2", "v9", "")
	d.askMembers(t.Context())
	quorum := &lease.Quorum{Volumes: []string{"v0", "v1", "v2"}, Write: 2}
	m := threeJoined()
	m.volumes, m.synchronous, m.quorum = d.ListVolumes(), &postgresapi.SynchronousConfig{Number: 1}, quorum
	for stream, want := range map[string][]string{"orders-2_v2": quorum.Volumes, "orders-2": quorum.Volumes, "orders-2_v9": {"v0", "v1", "v9"}} {
		m.reached = d.ListStreaming([]string{"orders-1_v1", stream})
		wanted := election.MembersWanted{Volumes: want, Quorum: &lease.Quorum{Volumes: want, Write: 2}}
		if diff := cmp.Diff(wanted, planMembers(m)); diff != "" {
			t.Errorf("with the stream %s (-want +got):\n%s", stream, diff)
		}
	}
	if name, known := d.FindStream("v2"); known {
		t.Errorf("the volume before acknowledges as %s", name)
	}
	if name, _ := d.FindStream("v9"); name != "orders-2_v9" {
		t.Errorf("the next volume acknowledges as %q", name)
	}
}

// While agents are upgraded one by one, each leader counts the name by which each member
// streams from it.
func TestRule15StreamsCountThroughARollingUpgrade(t *testing.T) {
	report := map[bool]func(p *fakePeers, pod, volume, system string){true: (*fakePeers).setOlder, false: (*fakePeers).set}
	for _, olderLeader := range []bool{true, false} {
		for _, olderMember := range []bool{true, false} {
			leader, ofLeader := newDirectory("orders-0", "orders-1")
			report[olderMember](ofLeader, "orders-1", "v1", "7")
			leader.askMembers(t.Context())
			counted, _ := leader.FindStream("v1")
			if olderLeader { // it knows of no other name
				counted = "orders-1"
			}
			peers := &fakePeers{statuses: map[string]agentapi.Status{}}
			member := NewDirectory("orders-1", func() []string { return []string{"orders-0", "orders-1"} }, peers)
			report[olderLeader](peers, "orders-0", "v0", "7")
			member.askMembers(t.Context())
			streams := member.NameStream("orders-0", "v1")
			if olderMember {
				streams = "orders-1"
			}
			if streams != counted {
				t.Errorf("older leader %t, older member %t: streams as %s, and %s counts", olderLeader, olderMember, streams, counted)
			}
		}
	}
	member, peers := newDirectory("orders-0", "orders-1")
	if name := member.NameStream("orders-1", "v0"); name != "orders-0_v0" {
		t.Errorf("before the leader answered it streams as %s", name)
	}
	for _, older := range []bool{true, false, true} { // back, too
		report[older](peers, "orders-1", "v1", "7")
		member.askMembers(t.Context())
		if name := member.NameStream("orders-1", "v0"); (name == "orders-0") != older {
			t.Errorf("the leader is older: %t, and it streams as %s", older, name)
		}
	}
}
