package etcd

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

func optionsForTest() Options {
	return Options{
		Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-1"},
		RunDir:   "/run", DataDir: "/data", ListenHost: "0.0.0.0", ClientPort: 2379, PeerPort: 2380, MetricsPort: 2381,
		PeerURL:   func(pod string) string { return "https://" + pod + ".svc:2380" },
		ClientURL: func(pod string) string { return "https://" + pod + ".svc:2379" },
	}
}

// has says which of the flags are on a command line.
func has(args []string, flags ...string) map[string]bool {
	found := map[string]bool{}
	for _, flag := range flags {
		found[flag] = slices.Contains(args, flag)
	}
	return found
}

func all(flags ...string) map[string]bool {
	want := map[string]bool{}
	for _, flag := range flags {
		want[flag] = true
	}
	return want
}

func TestCommandLine(t *testing.T) {
	join := start{Data: "/data/etcd", State: etcdapi.JoinExisting, Cluster: map[string]string{"orders-1": "https://orders-1.svc:2380", "orders-0": "https://orders-0.svc:2380"}}
	old, late := release{3, 5}, release{3, 7}
	for name, c := range map[string]struct {
		args    []string
		want    []string
		without string
	}{
		"a member joins with all that are there": {
			optionsForTest().commandLine(late, join, nil, 1<<30),
			[]string{"--initial-cluster=orders-0=https://orders-0.svc:2380,orders-1=https://orders-1.svc:2380", "--initial-cluster-state=existing",
				"--quota-backend-bytes=1073741824", "--listen-peer-urls=https://0.0.0.0:2380", "--listen-metrics-urls=http://127.0.0.1:2381"},
			"initial-cluster-token"},
		"only members are peers": {
			optionsForTest().commandLine(late, join, nil, 0),
			[]string{"--peer-cert-allowed-cn=" + agentapi.MemberName, "--peer-client-cert-auth=true", "--client-cert-auth=true"}, "quota"},
		"a bootstrap is out of reach of all clients": {
			optionsForTest().commandLine(late, start{Data: "/data/etcd.init", Alone: true, State: "new", Token: "u-v", Cluster: map[string]string{"orders-1": "x"}}, nil, 0),
			[]string{"--listen-peer-urls=https://127.0.0.1:2380", "--listen-client-urls=https://127.0.0.1:2379", "--initial-cluster-token=u-v"}, "force-new"},
		"a recovery forces a new cluster": {
			optionsForTest().commandLine(late, start{Data: "/data/etcd", Alone: true, ForceNew: true}, nil, 0),
			[]string{"--force-new-cluster=true", "--listen-peer-urls=https://127.0.0.1:2380"}, "initial-cluster-state"},
		"3.5 has the experimental names": {
			optionsForTest().commandLine(old, join, nil, 0),
			[]string{"--experimental-peer-skip-client-san-verification=true", "--experimental-initial-corrupt-check=true"}, "feature-gates"},
		"3.7 has none of them": {
			optionsForTest().commandLine(late, join, nil, 0),
			[]string{"--peer-skip-client-san-verification=true", "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true"}, "experimental"},
		"the user's parameters are over the defaults": {
			optionsForTest().commandLine(late, join, map[string]string{"feature-gates": "LeaseCheckpoint=true", "snapshot-count": "7"}, 0),
			[]string{"--feature-gates=LeaseCheckpoint=true", "--snapshot-count=7"}, "InitialCorruptCheck"},
		"and under what Holdfast needs": {
			optionsForTest().commandLine(late, join, map[string]string{"data-dir": "/tmp"}, 0),
			[]string{"--data-dir=/data/etcd"}, "/tmp"},
		"gates and experimental flags do not go together": {
			optionsForTest().commandLine(release{3, 6}, join, map[string]string{"experimental-initial-corrupt-check": "false"}, 0),
			[]string{"--experimental-initial-corrupt-check=false"}, "feature-gates"},
	} {
		if diff := cmp.Diff(all(c.want...), has(c.args, c.want...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s\nin %v", name, diff, c.args)
		}
		if line := strings.Join(c.args, " "); strings.Contains(line, c.without) {
			t.Errorf("%s: %q is in %s", name, c.without, line)
		}
	}
}

func TestListenHost(t *testing.T) {
	for pod, want := range map[string]string{"10.0.0.7": "0.0.0.0", "": "0.0.0.0", "fd00::7": "::"} {
		if got := listenHost(pod); got != want {
			t.Errorf("a pod at %q listens on %s, want %s", pod, got, want)
		}
	}
}
