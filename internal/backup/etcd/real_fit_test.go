//go:build etcd

package etcd

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// A member whose data is not the cluster's, or may not be, is not copied.
func TestRealUnfit(t *testing.T) {
	s, member, c := startEtcd(t)
	refuses := func(of agentapi.BackupSource, says string, vain bool) {
		t.Helper()
		var stream bytes.Buffer
		if _, err := s.CopyMember(t.Context(), of, &stream); err == nil || stream.Len() > 0 || backup.InVain(err) != vain || !strings.Contains(err.Error(), says) {
			t.Errorf("%d bytes, %v", stream.Len(), err)
		}
	}
	s.Cluster = "abc"
	refuses(member, "and abc is to be copied", true)
	s.Cluster = ""

	// A learner, and with it no quorum of its own.
	dir := t.TempDir()
	peer, client := freePort(t), freePort(t)
	asking, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	added, err := c.MemberAddAsLearner(asking, []string{"http://localhost:" + peer})
	if err != nil {
		t.Fatal(err)
	}
	initial := []string{"b=http://localhost:" + peer}
	for _, m := range added.Members {
		if m.ID != added.Member.ID {
			initial = append(initial, "a="+m.PeerURLs[0])
		}
	}
	tlsDir := filepath.Dir(s.Scratch)
	cmd := exec.Command(filepath.Join(filepath.Dir(s.Program), "etcd"), "--data-dir="+dir, "--name=b", "--initial-cluster-state=existing", //nolint:gosec // the test's own
		"--initial-cluster="+strings.Join(initial, ","), "--listen-client-urls=https://localhost:"+client, "--advertise-client-urls=https://localhost:"+client,
		"--listen-peer-urls=http://localhost:"+peer, "--initial-advertise-peer-urls=http://localhost:"+peer,
		"--cert-file="+filepath.Join(tlsDir, "tls.crt"), "--key-file="+filepath.Join(tlsDir, "tls.key"), "--trusted-ca-file="+filepath.Join(tlsDir, "ca.crt"), "--client-cert-auth", "--log-level=error")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	for {
		conn, err := net.Dial("tcp", "localhost:"+client)
		if err == nil {
			_ = conn.Close()
			break
		}
		if asking.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	refuses(agentapi.BackupSource{Name: "b", Address: "localhost:" + client}, "no vote", false)
}

// A snapshot that lacks what the group had before it is refused.
func TestRealSnapshotThatIsBehind(t *testing.T) {
	s, member, _ := startEtcd(t)
	var stream bytes.Buffer
	if _, err := s.CopyMember(t.Context(), member, &stream); err != nil {
		t.Fatal(err)
	}
	s.revision++
	if _, err := s.VerifyCopy(t.Context(), &stream); err == nil || backup.InVain(err) || !strings.Contains(err.Error(), "revision") {
		t.Error(err)
	}
}
