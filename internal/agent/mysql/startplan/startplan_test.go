package startplan

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
)

const server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

var (
	ours    = NameGroup("u", "v1")
	current = mysqlversion.Version{Series: mysqlversion.Series{Major: 9, Minor: 7}, Patch: 4}
	older   = mysqlversion.Version{Series: mysqlversion.Series{Major: 8, Minor: 4}, Patch: 11}
)

func data(name string) datavolume.Observation {
	return datavolume.Observation{Content: datavolume.ContentData, Mark: datavolume.Mark{Volume: "v1", Group: name}, Version: current, ServerUUID: server}
}

// restored is data that was restored for a cluster, and adopted what is made of it.
func restored(cluster string) datavolume.Observation {
	v := data("")
	v.Mark, v.RestoredFor, v.Restored = datavolume.Mark{}, cluster, datavolume.Mark{Volume: "v1", Group: ours}
	return v
}

func adopted() datavolume.Observation {
	v := restored("u")
	v.Mark = v.Restored
	return v
}

func empty(m datavolume.Mark) datavolume.Observation { return datavolume.Observation{Mark: m} }

func pinned() Membership { return Membership{Cluster: "u", Record: group.Record{Group: ours}} }

func started() Membership {
	m := pinned()
	m.Record = m.Record.WithJoining(server, "orders-0")
	return m
}

func TestPlanStart(t *testing.T) {
	named := datavolume.Mark{Volume: "v1"}
	cases := []struct {
		name   string
		change func(*Observation)
		action Action
		hold   agentapi.Hold
	}{
		{"files of something else", func(o *Observation) {
			o.Volume = datavolume.Observation{Content: datavolume.ContentUnknown, Unknown: "x"}
		}, Hold, agentapi.HoldDataUnknown},
		{"data of no group", func(o *Observation) { o.Volume = data("") }, Hold, agentapi.HoldDataUnknown},
		{"no configuration", func(o *Observation) { o.Config = nil }, Wait, ""},
		{"no configuration, and data", func(o *Observation) { o.Config, o.Volume = nil, data(ours) }, Wait, ""},
		{"data of another group than in status", func(o *Observation) { o.Volume, o.Config.SystemIdentifier = data("other"), ours }, Hold, agentapi.HoldSystemIdentifier},
		{"data of another group than on the Lease", func(o *Observation) { o.Volume = data("other"); o.Membership = started() }, Hold, agentapi.HoldSystemIdentifier},
		{"an empty volume of another group", func(o *Observation) {
			o.Volume, o.Config.SystemIdentifier = empty(datavolume.Mark{Volume: "v1", Group: "other"}), ours
		}, Hold, agentapi.HoldSystemIdentifier},
		{"data of a member that was scaled away", func(o *Observation) { o.Volume, o.Pod, o.Config.SystemIdentifier = data(ours), "orders-3", ours }, Hold, agentapi.HoldRemoved},
		{"an older configuration may not count a new member yet", func(o *Observation) {
			o.Volume, o.Pod, o.Live, o.Config.SystemIdentifier = data(ours), "orders-3", false, ours
		}, Start, ""},
		{"a full volume", func(o *Observation) {
			o.Volume, o.Config.SystemIdentifier = data(ours), ours
			o.Volume.Space = diskspace.Space{Free: 1, Total: 1 << 30}
		}, Hold, agentapi.HoldVolumeFull},
		{"data starts without the API server", func(o *Observation) {
			o.Volume, o.Config.SystemIdentifier, o.Live, o.MembershipKnown = data(ours), ours, false, false
		}, Start, ""},
		{"a copy that never ran has no version", func(o *Observation) {
			o.Volume, o.Config.SystemIdentifier = data(ours), ours
			o.Volume.Version = mysqlversion.Version{}
		}, Start, ""},
		{"data of a newer series", func(o *Observation) { o.Volume, o.Version, o.Config.SystemIdentifier = data(ours), older, ours }, Hold, agentapi.HoldDataVersion},
		{"data of the series before", func(o *Observation) {
			o.Volume, o.Config.SystemIdentifier = data(ours), ours
			o.Volume.Version = older
		}, Start, ""},
		{"data of an innovation release", func(o *Observation) {
			o.Volume, o.Config.SystemIdentifier = data(ours), ours
			o.Volume.Version = mysqlversion.Version{Series: mysqlversion.Series{Major: 9, Minor: 1}}
		}, Hold, agentapi.HoldDataVersion},

		{"the only member lost its data", func(o *Observation) { o.Config.Members, o.Config.SystemIdentifier = []string{"orders-0"}, ours }, Hold, agentapi.HoldDataMissing},
		{"the first member lost its data", func(o *Observation) { o.Config.SystemIdentifier = ours }, Clone, ""},
		{"the first member lost its data before status had the identifier", func(o *Observation) { o.Membership = started() }, Clone, ""},
		{"another member before the bootstrap", func(o *Observation) { o.Pod = "orders-1" }, AwaitFirst, ""},
		{"another member after the bootstrap", func(o *Observation) { o.Pod, o.Config.SystemIdentifier = "orders-1", ours }, Clone, ""},
		{"a mounted configuration bootstraps nothing", func(o *Observation) { o.Live = false }, Wait, ""},
		{"no API server, no bootstrap", func(o *Observation) { o.MembershipKnown = false }, Wait, ""},
		{"a new volume", func(*Observation) {}, NameVolume, ""},
		{"a named volume", func(o *Observation) { o.Volume = empty(named) }, PinGroup, ""},
		{"a pinned name", func(o *Observation) { o.Volume, o.Membership = empty(named), pinned() }, Bootstrap, ""},
		{"a name that was pinned for a volume that never had data", func(o *Observation) {
			o.Volume, o.Membership = empty(datavolume.Mark{Volume: "v2"}), pinned()
		}, PinGroup, ""},
		{"an interrupted bootstrap", func(o *Observation) {
			o.Volume, o.Membership = empty(datavolume.Mark{Volume: "v1", Group: ours, Installing: true}), pinned()
		}, Bootstrap, ""},
		{"first data that has gone before it was recorded", func(o *Observation) {
			o.Volume, o.Membership = empty(datavolume.Mark{Volume: "v1", Group: ours}), pinned()
		}, Hold, agentapi.HoldDataMissing},
		{"data that is kept aside", func(o *Observation) {
			o.Volume, o.Membership = empty(named), pinned()
			o.Volume.HasOld = true
		}, Hold, agentapi.HoldDataMissing},
		{"a record of an earlier cluster of the name", func(o *Observation) {
			o.Volume, o.Config.Fresh, o.Membership = empty(named), true, started()
			o.Membership.Cluster = "earlier"
		}, PinGroup, ""},
		{"such a record beside volumes of that cluster", func(o *Observation) {
			o.Volume, o.Membership = empty(named), started()
			o.Membership.Cluster, o.Config.Members = "earlier", []string{"orders-0"}
		}, Hold, agentapi.HoldDataMissing},
		{"first data", func(o *Observation) { o.Volume, o.Membership = data(ours), pinned() }, Start, ""},

		{"restored data", func(o *Observation) { o.Volume, o.Config.SystemIdentifier = restored("u"), ours }, AdoptRestored, ""},
		{"restored data before status has the identifier", func(o *Observation) { o.Volume = restored("u") }, AdoptRestored, ""},
		{"restored data of another cluster", func(o *Observation) { o.Volume = restored("w") }, Hold, agentapi.HoldDataUnknown},
		{"restored data, and a mounted configuration", func(o *Observation) { o.Volume, o.Live = restored("u"), false }, Wait, ""},
		{"restored data without the API server", func(o *Observation) { o.Volume, o.MembershipKnown = adopted(), false }, Wait, ""},
		{"restored data that was taken up", func(o *Observation) { o.Volume = adopted() }, PinGroup, ""},
		{"restored data beside what an earlier cluster of the name left", func(o *Observation) {
			o.Volume, o.Membership = adopted(), Membership{Cluster: "earlier", Record: group.Record{Group: "other"}.WithJoining(server, "orders-0")}
		}, PinGroup, ""},
		{"restored data after a restore whose volume was lost before it ran", func(o *Observation) {
			o.Volume, o.Membership = adopted(), Membership{Cluster: "u", Record: group.Record{Group: "other"}}
		}, PinGroup, ""},
		{"restored data in a cluster that has begun another group", func(o *Observation) {
			o.Volume, o.Config.SystemIdentifier = adopted(), ours
			o.Membership = Membership{Cluster: "u", Record: group.Record{Group: "other"}.WithJoining(server, "orders-1")}
		}, Hold, agentapi.HoldSystemIdentifier},
		{"restored data whose group is recorded", func(o *Observation) { o.Volume, o.Membership = adopted(), pinned() }, Start, ""},
		{"restored data of an older series", func(o *Observation) {
			o.Volume, o.Version = restored("u"), older
		}, Hold, agentapi.HoldDataVersion},
		{"restored data that was in a group starts without the API server", func(o *Observation) {
			o.Volume, o.MembershipKnown, o.Config.SystemIdentifier = adopted(), false, ours
			o.Volume.HasRecord = true
		}, Start, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := Observation{
				Pod: "orders-0", Version: current, Live: true, MembershipKnown: true,
				Config: &agentapi.ClusterConfig{UID: "u", Members: []string{"orders-0", "orders-1", "orders-2"}},
			}
			c.change(&o)
			p := PlanStart(o)
			if p.Action != c.action || p.Hold != c.hold || p.Message == "" {
				t.Errorf("%+v", p)
			}
			if p.Action == AdoptRestored && !o.NeedsMembership() {
				t.Error("the record is not read")
			}
			if (p.Action == PinGroup || p.Action == Bootstrap) && p.Group != NameGroup("u", o.Volume.Mark.Volume) {
				t.Errorf("the group is named %s", p.Group)
			}
		})
	}
}

// Two bootstraps for one cluster have different names, so that no transaction of one is
// taken for one of the other.
func TestNameGroup(t *testing.T) {
	names := map[string]bool{NameGroup("u", "v1"): true, NameGroup("u", "v2"): true, NameGroup("w", "v1"): true}
	if len(names) != 3 || strings.ToLower(ours) != ours || len(ours) != 36 {
		t.Errorf("%v", names)
	}
}

func TestPlanFirstEntry(t *testing.T) {
	if r, due := PlanFirstEntry(group.Record{Group: ours}, ours, server, "orders-0"); !due || !r.IsOnly(server) || r.Group != ours {
		t.Errorf("%+v, %v", r, due)
	}
	for name, r := range map[string]group.Record{
		"a lost record":             {},
		"another group":             {Group: "other"},
		"a member is recorded":      group.Record{Group: ours}.WithJoining("x", "orders-1"),
		"the group was started yet": {Group: ours, Boot: group.Boot{Term: 1, UUID: "x"}},
	} {
		if _, due := PlanFirstEntry(r, ours, server, "orders-0"); due {
			t.Error(name)
		}
	}
}
