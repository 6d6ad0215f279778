//go:build e2e || soak

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// etcdPlugin: each verb on a healthy cluster of etcd.
func etcdPlugin(t *testing.T) {
	c := newSubject(t, etcd, 3)
	c.waitReady()
	c.pluginPrints(0, []string{"status"}, "ec/orders", "3/3", "Ready")
	c.pluginPrints(0, []string{"status", "orders"}, "3/3 ready", "data ", "data-orders-2 1Gi", "Events")
	c.pluginNamesLeader("", "status")
	c.pluginNamesLeader("leader ", "status", "orders")
	var report struct {
		Members []struct {
			DataBytes *int64 `json:"dataBytes"`
		} `json:"members"`
	}
	must(t, json.Unmarshal([]byte(c.pluginPrints(0, []string{"status", "ec/orders", "-o", "json"})), &report), "status -o json")
	if len(report.Members) != 3 || report.Members[2].DataBytes == nil {
		t.Errorf("members %+v", report.Members)
	}
	if out := c.pluginPrints(0, []string{"drift", "orders", "--diff"}); out != "" {
		t.Errorf("an untouched cluster differs: %s", out)
	}
	c.pluginPrints(0, []string{"suspend", "orders"}, "ec/orders suspended")
	c.pluginPrints(0, []string{"resume", "orders"}, "ec/orders resumed")
	c.pluginPrints(0, []string{"reconcile", "orders", "--wait"}, "ec/orders is as declared")
	c.pluginPrints(0, []string{"logs", "orders", "--tail", "1"}, "orders-0 | ", "orders-1 | ", "orders-2 | ")
	etcdctlInPlugin(c)
	shell := newDocsShell(t, c.namespace)
	if out := shell.runStep(t, "EtcdPlugin", "compare-hashes", "etcdctl config", "etcdctl orders", "--rev 1200", "--rev 2"); strings.Count(out, ":2379 ") != 3 {
		t.Errorf("not every member has a hash: %s", out)
	}
	shell.runStep(t, "EtcdPlugin", "certificate", "credentials config", "credentials orders")
	if _, err := tls.LoadX509KeyPair(filepath.Join(shell.folder, "config-tls", "tls.crt"), filepath.Join(shell.folder, "config-tls", "tls.key")); err != nil {
		t.Errorf("the certificate: %v", err)
	}

	dir := t.TempDir()
	out := c.pluginPrints(0, []string{"credentials", "orders", "-o", "env", "--directory", dir}, "export ETCDCTL_KEY="+filepath.Join(dir, "tls.key"))
	if !strings.Contains(out, "export ETCDCTL_ENDPOINTS=https://orders-client."+c.namespace+".svc:2379\n") {
		t.Errorf("the endpoints are not in %s", out)
	}
}

// pluginNamesLeader: a verb's output has the leader after a word. On a busy machine
// the group may elect another one at any moment.
func (c *subject) pluginNamesLeader(word string, args ...string) {
	c.t.Helper()
	eventually(c.t, serviceTimeout, fmt.Sprintf("%v names the leader", args), func(context.Context) error {
		leader := c.getCluster().CommonStatus().Primary
		if out, complaint, code := c.runPlugin("", args...); code != 0 || !strings.Contains(out, word+leader) {
			return fmt.Errorf("exit code %d, %q is not in %q: %s", code, word+leader, out, complaint)
		}
		return nil
	})
}

// etcdctlInPlugin passes on arguments, standard input and the exit code.
func etcdctlInPlugin(c *subject) {
	c.t.Helper()
	if out, complaints, code := c.runPlugin("hello", "etcdctl", "orders", "--", "put", "greeting"); out != "OK\n" || code != 0 {
		c.t.Errorf("put: %q, %q, exit code %d", out, complaints, code)
	}
	for _, member := range []string{"0", "2"} {
		if out := c.pluginPrints(0, []string{"etcdctl", "orders", "--member", member, "--", "get", "--print-value-only", "greeting"}); out != "hello\n" {
			c.t.Errorf("member %s says %q", member, out)
		}
	}
	c.pluginPrints(0, []string{"shell", "orders", "--", "etcdctl", "version"}, "etcdctl version")
	stdout, stderr, _ := c.runPlugin("", "etcdctl", "orders", "--", "endpoint", "health", "--cluster")
	if n := strings.Count(stdout+stderr, "is healthy"); n != 3 {
		c.t.Errorf("%d members are healthy: %s%s", n, stdout, stderr)
	}
	c.pluginPrints(1, []string{"shell", "orders"}, "has no shell", "kubectl holdfast etcdctl orders")
	if _, _, code := c.runPlugin("", "etcdctl", "orders", "--", "no-such-command"); code == 0 {
		c.t.Error("the exit code of etcdctl is lost")
	}
}
