package postgres

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const ours = "7000000000000000001"

// What a primary says counts only while it can query its database, and only of its own system.
func TestReadEnd(t *testing.T) {
	r := &positionReader{
		store: statusserver.NewStore(agentapi.Status{
			Role: v1alpha1.RolePrimary, Serving: true, SystemIdentifier: ours, Position: 0x20, Engine: postgresapi.ReplicationStatus{Timeline: 1},
		}),
		session: server.NewSession(t.TempDir(), 1, "none"), // no server answers
	}
	if got := leaderview.ReadEnd(r.store.Get(), ours); got != lsn.Parse(1, "0/20") {
		t.Errorf("it ends at %v", got)
	}
	if got := leaderview.ReadEnd(r.store.Get(), "another"); lsn.IsAhead(lsn.Parse(1, "0/30"), got) {
		t.Errorf("ahead of another system's %v", got)
	}
	r.refreshPosition(t.Context())
	if got := leaderview.ReadEnd(r.store.Get(), ours); lsn.IsAhead(lsn.Parse(1, "0/30"), got) {
		t.Errorf("ahead of what may be old, %v", got)
	}
}

// A client that reads that a configuration is in force reads the archive's status
// of that configuration, too: it is reported before.
func TestArchiveIsReportedBeforeTheConfiguration(t *testing.T) {
	s := &liveSettings{host: &agent.Host{Store: statusserver.NewStore(agentapi.Status{})}}
	place := &archive.Place{ArchiveConfig: agentapi.ArchiveConfig{Prefix: "before/"}}
	var hashes []string
	s.archive = archive.New(archive.Options{
		Log: slog.New(slog.DiscardHandler), DataDirectory: t.TempDir(),
		Place:  func() (*archive.Place, error) { return place, nil },
		Report: func(*agentapi.ArchiveStatus) { hashes = append(hashes, s.host.Store.Get().ConfigHash) },
	})
	s.archive.BeginRun(true)
	s.reportInForce("new", nil)
	if len(hashes) != 2 || hashes[1] != "" || s.host.Store.Get().ConfigHash != "new" {
		t.Errorf("the archive was reported with the configurations %q", hashes)
	}
}

func TestUpstreamAndSlotName(t *testing.T) {
	o := Options{Paths: Paths{RunDir: "/run/holdfast"}, Identity: identity.Identity{Pod: "orders-1"},
		DatabaseAddress: func(pod string) string { return pod + ".orders-members.shop.svc:5432" }}
	if got := o.leaderConnection("orders-0", "10.0.0.7").String(); !strings.Contains(got, "hostaddr='10.0.0.7'") {
		t.Errorf("%s lacks the address", got)
	}
	got := o.leaderConnection("orders-0", "").String()
	for _, part := range []string{"host='orders-0.orders-members.shop.svc'", "port='5432'", "sslmode='verify-full'", "application_name='orders-1'"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s lacks %s", got, part)
		}
	}
	if got := o.copyConnection("orders-0", ""); !strings.Contains(got, "application_name='holdfast_copy'") {
		t.Errorf("a copy counts as a standby: %s", got)
	}
	if name := settings.StreamName(strings.Repeat("a", 40)+"-99", strings.Repeat("X", 26)); len(name) > 63 {
		t.Errorf("PostgreSQL cuts %s", name)
	}
	if got := settings.SlotName("my-orders-1"); got != "holdfast_my_orders_1" {
		t.Errorf("slot name is %s", got)
	}
}

// WAL is given up for the leader's data only where an election left it behind, and not
// too much of it.
func TestRule18WhichWALIsSuperseded(t *testing.T) {
	known := elector.Leader{Timeline: 5, ForcedTimeline: 2}
	for _, c := range []struct {
		name   string
		own    lsn.Point
		left   uint64
		leader int64
		known  elector.Leader
		want   bool
	}{
		{"a former primary's own last writes", lsn.Parse(4, "0/3000100"), 0x3000000, 5, known, true},
		{"the leader's history does not lead through it", lsn.Parse(4, "0/3000100"), 0, 5, known, false},
		{"of the leader's own timeline", lsn.Parse(5, "0/3000100"), 0x3000000, 5, known, false},
		{"the Lease names another leader by now", lsn.Parse(4, "0/3000100"), 0x3000000, 5, elector.Leader{Timeline: 6}, false},
		{"a person had the leader's line begin", lsn.Parse(4, "0/3000100"), 0x3000000, 5, elector.Leader{Timeline: 5, ForcedTimeline: 5}, false},
		{"more than is given up without a person", lsn.Parse(4, "1/3000100"), 0x3000000, 5, known, false},
	} {
		if got := isWALSuperseded(c.own, c.left, c.leader, c.known); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
