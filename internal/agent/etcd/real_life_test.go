//go:build etcd

package etcd

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

func TestRealLife(t *testing.T) {
	w := newWorld(t, 3)
	volumes := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	first := w.seed(volumes[0])
	c := w.dial(0, 1, 2)
	put(t, c, "a", "1")
	members := []*run{first, w.grow(c, 1, volumes[1]), w.grow(c, 2, volumes[2])}

	for i, r := range members {
		status := r.until("knowing all", func(s agentapi.Status) bool {
			return s.Serving && len(readGroup(s).Group.Members) == 3 && !slices.ContainsFunc(readGroup(s).Group.Members, func(m etcdapi.GroupMember) bool { return m.Learner || m.Name == "" })
		})
		if log, err := readRaftLog(filepath.Join(volumes[i], dataName)); err != nil || log.Member != readGroup(status).Group.Self || log.Cluster != status.SystemIdentifier || log.Commit == 0 {
			t.Errorf("the Raft log of %s says %+v, %v; etcd %+v", status.Pod, log, err, readGroup(status).Group)
		}
		r.until("keeping its version", func(s agentapi.Status) bool {
			return readGroup(s).DataVersion != "" && readGroup(s).DataVersion == s.Version
		})
		if readGroup(status).Group.Leader != readGroup(first.Store.Get()).Group.Self || status.TrustHash == "" || readGroup(status).DataLimit != defaultQuota {
			t.Errorf("%+v", status)
		}
	}
	scrape(t, w.ports[0].probe)

	// The leader transfers leadership before it stops.
	first.stop()
	members[1].until("hearing of another leader", func(s agentapi.Status) bool {
		return s.Serving && readGroup(s).Group.Leader != "" && readGroup(s).Group.Leader != readGroup(first.Store.Get()).Group.Self
	})
	put(t, w.dial(1, 2), "a", "2")
	again := w.start(0, volumes[0])
	again.untilState(agentapi.StateRunning)
	if got := get(t, w.dial(0), "a"); got != "2" {
		t.Errorf("a is %q", got)
	}
}

// A member of several serves those that still come while nodes take up that it has left the
// Services. The only member stops at once: there is no other to go to.
func TestRealDrain(t *testing.T) {
	t.Run("Several", func(t *testing.T) {
		w := newWorld(t, 2)
		w.drain = 5 * time.Second
		w.seed(t.TempDir())
		second := w.grow(w.dial(0, 1), 1, t.TempDir())
		second.until("serving", func(s agentapi.Status) bool { return s.Serving })
		stopped := make(chan struct{})
		go func() { second.stop(); close(stopped) }()
		second.until("stopping", func(s agentapi.Status) bool { return s.State == agentapi.StateStopping && !s.Serving })
		for range 6 { // more than etcd takes to stop
			put(t, w.dial(1), "a", "1")
			time.Sleep(500 * time.Millisecond)
		}
		select {
		case <-stopped:
			t.Error("the member has stopped before clients could leave it")
		default:
		}
		<-stopped
	})
	t.Run("Alone", func(t *testing.T) {
		w := newWorld(t, 1)
		w.drain = time.Hour
		w.seed(t.TempDir()).stop()
	})
}

// scrape reads the member's metrics, and those of its etcd among them.
func scrape(t *testing.T, port int) {
	t.Helper()
	response, err := http.Get("http://" + local127(port) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nholdfast_etcd_up 1\n", "\netcd_server_is_leader 1\n", "\netcd_server_has_leader 1\n", "\ngo_goroutines "} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q among %d bytes of metrics", strings.TrimSpace(want), len(body))
		}
	}
	for _, file := range []string{"../../../config/prometheus/rules.yaml", "../../../config/dashboards/etcd.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		read := regexp.MustCompile(`\b(?:etcd|grpc_server)_[a-z_]+`).FindAllString(string(text), -1)
		if len(read) == 0 {
			t.Errorf("%s reads no metric of etcd", file)
		}
		for _, name := range read {
			if !strings.Contains(string(body), "\n"+name+" ") && !strings.Contains(string(body), "\n"+name+"{") {
				t.Errorf("%s reads %s, which is not among the metrics", file, name)
			}
		}
	}
}

func TestRealParameters(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	// One that is refused, one that only a start shows to be bad.
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"snapshot-count": "5000", "snapshot-cuont": "1"}
	})
	r := w.seed(volume)
	status := r.until("refusing", func(s agentapi.Status) bool { return s.Serving && s.ConfigError != "" })
	if status.ConfigError != "snapshot-cuont: unrecognized parameter" || status.PendingRestart != nil {
		t.Errorf("%+v", status)
	}
	hash := w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters, c.DataLimit = map[string]string{"snapshot-count": "6000", "experimental-watch-progress-notify-interval": "5s"}, 1<<30
	})
	status = r.until("waiting for a restart", func(s agentapi.Status) bool { return s.ConfigHash == hash && s.ConfigError == "" })
	if len(status.PendingRestart) != 3 || !slices.Contains(status.PendingRestart, etcdapi.PendingLimit) || !slices.Contains(status.PendingRestart, "snapshot-count") {
		t.Errorf("pending: %v", status.PendingRestart)
	}
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"data-dir": "/tmp", "heartbeat-interval": "5000"}
	})
	status = r.until("refusing", func(s agentapi.Status) bool { return s.ConfigError != "" })
	if !strings.Contains(status.ConfigError, "data-dir: is set by Holdfast") || !strings.Contains(status.ConfigError, "--election-timeout") {
		t.Errorf("refused: %s", status.ConfigError)
	}
	r.stop()

	hash = w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = map[string]string{"snapshot-count": "6000"} })
	r = w.start(0, volume)
	status = r.until("configured", func(s agentapi.Status) bool { return s.Serving && s.ConfigHash == hash })
	if status.PendingRestart != nil || readGroup(status).DataLimit != 1<<30 {
		t.Errorf("%+v", status)
	}
	r.stop()

	// The checks of a command line let it pass, and etcd does not start with it.
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"auto-compaction-retention": "soon"}
	})
	r = w.start(0, volume)
	status = r.until("serving all the same", func(s agentapi.Status) bool { return s.Serving })
	if status.ConfigError == "" || status.ConfigHash == hash {
		t.Errorf("%+v", status)
	}
}
