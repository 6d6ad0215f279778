//go:build etcd

package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// secretOf is a literal that stands in keys and values.
const secretOf = "Xq7canary4111222233334444"

// provoked are the classes that members of a world have found, and the largest number of
// each.
type provoked map[string]float64

// add takes what members have found.
func (p provoked) add(t *testing.T, members ...*run) {
	t.Helper()
	for _, m := range members {
		report := m.Insights.Report()
		for _, i := range report.Classes {
			p[i.Class] = max(p[i.Class], i.Largest)
		}
		t.Logf("%s: %d lines, %d of no class, %d dropped", report.Pod, report.Lines, report.Unclassified, report.Dropped)
	}
}

// untilFound waits until one of the members has found each of the classes.
func untilFound(t *testing.T, members []*run, classes ...string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		missing := listMissing(members, classes...)
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("not found: %v", missing)
			return
		}
	}
}

func listMissing(members []*run, classes ...string) []string {
	found := map[string]bool{}
	for _, m := range members {
		for _, i := range m.Insights.Report().Classes {
			found[i.Class] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(classes), func(class string) bool { return found[class] })
}

// Every class is found that a real etcd can be brought to report, and no key or value is in
// what the agents answer.
func TestRealInsights(t *testing.T) {
	found, inOne := provoked{}, provoked{}
	t.Run("members", func(t *testing.T) {
		t.Run("three", func(t *testing.T) { provokeInThree(t, found) })
		t.Run("one", func(t *testing.T) { provokeInOne(t, inOne) })
	})
	maps.Copy(found, inOne)
	for _, c := range loginsight.ListClasses(loginsight.Etcd) {
		if _, is := found[c.Name]; !is {
			t.Errorf("class %s was not provoked", c.Name)
		}
	}
	// As long as etcd stood still, at least.
	for class, least := range map[string]float64{"EtcdDiskSlow": 1000, "EtcdSlowRequest": 300, "EtcdClockDrift": 50 * 60 * 1000, "EtcdHeartbeatLate": 1} {
		if found[class] < least {
			t.Errorf("%s has the number %v", class, found[class])
		}
	}
}

// requireNoLiteral reads what agents answer.
func requireNoLiteral(t *testing.T, w *world, members ...*run) {
	t.Helper()
	for _, m := range members {
		agenttest.RequireNoLiteral(t, agenttest.ReadMetrics(t, local127(w.of(m.o.Identity.Pod).probe)), m.Insights.Report(), m.Store.Get(), secretOf, "canary")
	}
}

// freeze stops the processes of a member's etcd for a while.
func (r *run) freeze(while func()) {
	r.t.Helper()
	pids := r.Lock.Holders()
	if len(pids) == 0 {
		r.t.Fatalf("%s: no process", r.o.Identity.Pod)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	defer func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	while()
}

func provokeInThree(t *testing.T, found provoked) {
	w := newWorld(t, 3)
	volumes := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	first := w.seed(volumes[0])
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{
			trimExperimental("experimental-warning-apply-duration", first.release):  "1ns",
			trimExperimental("experimental-compact-hash-check-time", first.release): "2s",
		}
	})
	first.stop()
	first = w.start(0, volumes[0])
	first.untilState(agentapi.StateRunning)
	c := w.dial(0)
	put(t, c, secretOf, secretOf)
	if got := get(t, c, secretOf); got != secretOf {
		t.Errorf("got %q", got)
	}
	_ = ask(t, w, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a client that is to be refused
	members := []*run{first, w.grow(c, 1, volumes[1]), w.grow(c, 2, volumes[2])}
	untilFound(t, members, "EtcdStarted", "EtcdLeaderElected", "EtcdElection", "EtcdTLSRejected", "EtcdSlowApply")

	provokeWithRequests(t, w, c, members)
	requireNoLiteral(t, w, members...)
	provokeWithLateLeader(t, w, members)
	provokeWithOtherData(t, w, found, members, volumes[2])
	members = members[:2]

	// Of three members one is away, and the leader does not reach the other one.
	leader, follower := findLeader(t, members)
	follower.freeze(func() { untilFound(t, []*run{leader}, "EtcdQuorumLost") })
	leader, follower = findLeader(t, members)
	leader.Lock.KillHolders() // an end without a farewell
	untilFound(t, []*run{follower}, "EtcdLeaderLost", "EtcdPeerUnreachable")
	leader.untilState(agentapi.StateRunning)
	requireNoLiteral(t, w, members...)
	follower.stop()
	untilFound(t, members, "EtcdStopping")
	found.add(t, members...)
}

// findLeader waits until one of two members leads, and both serve.
func findLeader(t *testing.T, members []*run) (leader, follower *run) {
	t.Helper()
	for range 600 {
		one, two := members[0].Store.Get(), members[1].Store.Get()
		if one.Serving && two.Serving && readGroup(one).Group.Leader == readGroup(two).Group.Leader {
			switch readGroup(one).Group.Leader {
			case readGroup(one).Group.Self:
				return members[0], members[1]
			case readGroup(two).Group.Self:
				return members[1], members[0]
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("no member leads")
	return nil, nil
}

// provokeWithRequests provokes what requests of clients do.
func provokeWithRequests(t *testing.T, w *world, c *clientv3.Client, members []*run) {
	t.Helper()
	last := int64(0)
	for i := range 8 {
		done, err := c.Put(w.context(), fmt.Sprint(secretOf, i%2), strings.Repeat(secretOf, 1000))
		if err != nil {
			t.Fatal(err)
		}
		last = done.Header.Revision
	}
	if _, err := c.Compact(w.context(), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Defragment(w.context(), "https://"+local127(w.ports[0].client)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(w.context(), secretOf, secretOf, clientv3.WithLease(4711)); err == nil {
		t.Error("a key has a lease that does not exist")
	}
	// A method and a version that no client has.
	_ = c.ActiveConnection().Invoke(w.context(), "/etcdserverpb.KV/"+secretOf, &etcdserverpb.RangeRequest{}, &etcdserverpb.RangeResponse{})
	claims := metadata.AppendToOutgoingContext(w.context(), rpctypes.MetadataClientAPIVersionKey, secretOf)
	if _, err := etcdserverpb.NewKVClient(c.ActiveConnection()).Range(claims, &etcdserverpb.RangeRequest{Key: []byte(secretOf)}); err != nil {
		t.Error(err)
	}
	untilFound(t, members, "EtcdCompacted", "EtcdDefragmented", "EtcdApplyFailed")
}

// provokeWithLateLeader has the leader stand still, for less time than it takes to be
// replaced, while a client reads from a follower.
func provokeWithLateLeader(t *testing.T, w *world, members []*run) {
	t.Helper()
	classes := []string{"EtcdHeartbeatLate", "EtcdReadIndexLate", "EtcdSlowRequest"}
	for end := time.Now().Add(time.Minute); len(listMissing(members, classes...)) > 0 && time.Now().Before(end); {
		leader, follower := findLeader(t, members[:2])
		ordinal := slices.Index(members, follower)
		c := w.dial(ordinal)
		_ = get(t, c, secretOf)
		read := make(chan error, 1)
		leader.freeze(func() {
			go func() {
				_, err := c.Get(w.context(), secretOf)
				read <- err
			}()
			time.Sleep(700 * time.Millisecond)
		})
		if err := <-read; err != nil {
			t.Logf("the read that waited: %v", err)
		}
	}
	untilFound(t, members, classes...)
}

// provokeWithOtherData changes a value on the volume of a member that is down. It is found
// out at its start or, before etcd 3.6, by the leader.
func provokeWithOtherData(t *testing.T, w *world, found provoked, members []*run, volume string) {
	t.Helper()
	put(t, w.dial(0), "changed", "a value that a volume loses: "+secretOf)
	members[2].until("the value", func(agentapi.Status) bool { return get(t, w.dial(2), "changed") != "" })
	members[2].stop()
	found.add(t, members[2])
	path := filepath.Join(volume, dataName, "member", "snap", "db")
	data := file(t, path)
	changed := bytes.ReplaceAll(data, []byte("a volume loses"), []byte("a volume LOSES"))
	if bytes.Equal(data, changed) {
		t.Fatal("the value is not in the file")
	}
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	other := w.start(2, volume)
	if !other.release.hasStableNames() {
		// It knows no other member yet when it starts. The leader compares after a compaction.
		other.untilState(agentapi.StateRunning)
		c := w.dial(0)
		done, err := c.Put(w.context(), secretOf, secretOf)
		if err == nil {
			_, err = c.Compact(w.context(), done.Header.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	untilFound(t, []*run{members[0], members[1], other}, "EtcdDataDiffers")
	requireNoLiteral(t, w, other)
	other.stop()
	found.add(t, other)
}

// provokeInOne provokes what a slow disk, a full quota and a peer do that is in a bad way.
// The peer is one of the test.
func provokeInOne(t *testing.T, found provoked) {
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) { c.DataLimit = 32 << 20 })
	r := w.seed(t.TempDir())
	c := w.dial(0)
	provokeWithSlowDisk(t, w, r, c)

	peer := startPeer(t, w, time.Hour)
	w.again(func() error { _, err := c.MemberAddAsLearner(w.context(), []string{peer}); return err })
	untilFound(t, []*run{r}, "EtcdClockDrift", "EtcdPeerOverloaded")

	var err error
	for i := range 100 {
		if _, err = c.Put(w.context(), fmt.Sprint(i), strings.Repeat(secretOf, 1<<15)); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("the quota was never reached")
	}
	untilFound(t, []*run{r}, "EtcdAlarmRaised")
	requireNoLiteral(t, w, r)
	found.add(t, r)
}

// provokeWithSlowDisk stops etcd until that happens while it waits for the disk, as it
// mostly does.
func provokeWithSlowDisk(t *testing.T, w *world, r *run, c *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			_, _ = c.Put(ctx, "busy", secretOf)
		}
	}()
	for end := time.Now().Add(2 * time.Minute); len(listMissing([]*run{r}, "EtcdDiskSlow")) > 0 && time.Now().Before(end); {
		r.freeze(func() { time.Sleep(1100 * time.Millisecond) })
		time.Sleep(100 * time.Millisecond)
	}
	untilFound(t, []*run{r}, "EtcdDiskSlow")
}

// startPeer listens as a peer does whose clock is behind, and that takes messages and never
// answers them.
func startPeer(t *testing.T, w *world, behind time.Duration) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(w.tls, "tls.crt"), filepath.Join(w.tls, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	mux, ended := http.NewServeMux(), make(chan struct{})
	mux.HandleFunc("/raft/probing", func(answer http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(answer).Encode(map[string]any{"OK": true, "Now": time.Now().Add(-behind)})
	})
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) { <-ended })
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(func() { close(ended); server.CloseClientConnections(); server.Close() })
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "https://" + net.JoinHostPort("localhost", port)
}
