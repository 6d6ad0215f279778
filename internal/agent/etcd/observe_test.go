package etcd

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

func TestSituation(t *testing.T) {
	members := []etcdapi.GroupMember{{ID: "a"}}
	status := func(leader uint64, learner bool) *clientv3.StatusResponse {
		return &clientv3.StatusResponse{Leader: leader, IsLearner: learner}
	}
	for _, c := range []struct {
		name     string
		observed serverObservation
		up       bool
		want     agentapi.State
	}{
		{"nothing answers yet", serverObservation{}, false, agentapi.StateRecovering},
		{"nothing answers any more", serverObservation{}, true, agentapi.StateDisconnected},
		{"after a start without a quorum only the peer port answers", serverObservation{Members: members}, true, agentapi.StateDisconnected},
		{"the leader is lost", serverObservation{Members: members, Status: status(0, false)}, true, agentapi.StateDisconnected},
		{"a learner has no vote", serverObservation{Members: members, Status: status(7, true)}, true, agentapi.StateCatchingUp},
		{"a learner without a leader", serverObservation{Members: members, Status: status(0, true)}, true, agentapi.StateDisconnected},
		{"a member serves", serverObservation{Members: members, Status: status(7, false)}, true, agentapi.StateRunning},
	} {
		if got, message := describeState(c.observed, c.up); got != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got, message, c.want)
		}
	}
}

func TestAlarms(t *testing.T) {
	got := parseAlarms([]string{"memberID:255 alarm:NOSPACE ", "etcdserver: no leader", "memberID:16  alarm:CORRUPT", "memberID:255 alarm:NOSPACE "})
	if diff := cmp.Diff([]string{"CORRUPT:10", "NOSPACE:ff"}, got); diff != "" {
		t.Error(diff)
	}
}

// What the operator acts on moves in steps, so that nothing wakes it in between.
func TestSteps(t *testing.T) {
	const mi = 1 << 20
	for _, c := range []struct {
		size, inUse, limit int64
		fill, unused       int
	}{
		{0, 0, 100 * mi, 0, 0},
		{79 * mi, 79 * mi, 100 * mi, 75, 0},
		{80 * mi, 80 * mi, 100 * mi, 80, 0},
		{15 * mi, 0, 100 * mi, 15, 0},     // not worth it
		{100 * mi, 41 * mi, 0, 0, 55},     // no quota
		{101 * mi, mi, 100 * mi, 100, 95}, // over it
	} {
		if f, u := fillPercent(c.size, c.limit), unusedPercent(c.size, c.inUse); f != c.fill || u != c.unused {
			t.Errorf("%+v: fill %d, unused %d", c, f, u)
		}
	}
}

func TestParseMembers(t *testing.T) {
	// As etcd 3.5 and 3.7 write it.
	got, err := parseMembers(strings.NewReader(`[{"id":10276657743932975437,"peerURLs":["https://b:2380"],"isLearner":true},
		{"id":18,"peerURLs":["https://a:2380"],"name":"a","clientURLs":["https://a:2379"]}]`))
	want := []etcdapi.GroupMember{{ID: "12", Name: "a", PeerURL: "https://a:2380"}, {ID: "8e9e05c52164694d", PeerURL: "https://b:2380", Learner: true}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("(-want +got):\n%s %v", diff, err)
	}
}

func TestCounts(t *testing.T) {
	grant := etcdapi.JoinGrant{MemberID: "b", InitialCluster: map[string]string{"orders-1": "https://1:2380", "orders-0": "https://0:2380"}}
	other := etcdapi.GroupMember{ID: "z", PeerURL: "https://0:2380"}
	with := func(id, url string) []etcdapi.GroupMember {
		return []etcdapi.GroupMember{{ID: id, PeerURL: url}, other}
	}
	for name, c := range map[string]struct {
		list []etcdapi.GroupMember
		data string
		want confirmation
	}{
		"the member at its address":            {with("b", "https://1:2380"), "", confirmYes},
		"the member at another address":        {with("b", "https://2:2380"), "", confirmNo},
		"another member at the address":        {with("c", "https://1:2380"), "", confirmNo},
		"in place of the member of the data":   {with("b", "https://1:2380"), "a", confirmYes},
		"beside the member of the data":        {append(with("b", "https://1:2380"), etcdapi.GroupMember{ID: "a"}), "a", confirmNo},
		"the member of the data and no other":  {with("a", "https://1:2380"), "a", confirmNo},
		"a list that does not know it, so far": {nil, "", confirmNo},
	} {
		if got := confirmMembership(c.list, grant, c.data, "orders-1"); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A member that answers no client still says in its metrics whether it hears a
// leader.
func TestHasLeader(t *testing.T) {
	for _, c := range []struct {
		name, metrics string
		status        int
		want          bool
	}{
		{"it hears one", "# TYPE etcd_server_has_leader gauge\netcd_server_has_leader 1\n", http.StatusOK, true},
		{"it hears none", "# TYPE etcd_server_has_leader gauge\netcd_server_has_leader 0\n", http.StatusOK, false},
		{"it does not say", "# TYPE etcd_server_is_leader gauge\netcd_server_is_leader 1\n", http.StatusOK, false},
		{"it is no etcd", "no metrics", http.StatusOK, false},
		{"it is starting", "etcd_server_has_leader 1\n", http.StatusServiceUnavailable, false},
	} {
		etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.metrics)
		}))
		a := &etcdAgent{o: Options{MetricsPort: etcd.Listener.Addr().(*net.TCPAddr).Port}}
		if got := a.hasLeader(t.Context()); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		etcd.Close()
		if a.hasLeader(t.Context()) {
			t.Errorf("%s, and then it is gone: it hears a leader", c.name)
		}
	}
}
