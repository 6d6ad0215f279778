//go:build e2e || soak

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// viewer is a user who has the role view in the cluster's namespace, and no other right.
const viewer = "viewer-of-holdfast"

// allowViewer binds the role view, which Holdfast's own is aggregated to.
func (c *subject) allowViewer() {
	c.t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: viewer},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: viewer}},
	}
	must(c.t, env.client.Create(c.t.Context(), binding), "bind the role view")
}

// uiPages are those of one kubectl holdfast ui, in one browser.
type uiPages struct {
	client *http.Client
	base   string
}

// runUI runs kubectl holdfast ui as the viewer, and returns the address that it prints,
// which opens once.
func (c *subject) runUI(flags ...string) string {
	c.t.Helper()
	path, err := findPlugin()
	must(c.t, err, "find the plugin")
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		kubeconfig = filepath.Join(state, "kubeconfig")
	}
	cmd := exec.CommandContext(c.t.Context(), path, append([]string{"ui", "--kubeconfig", kubeconfig, "-n", c.namespace, "--as", viewer}, flags...)...)
	out, err := cmd.StdoutPipe()
	must(c.t, err, "read what ui prints")
	must(c.t, cmd.Start(), "start ui")
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	must(c.t, err, "read the address")
	return strings.TrimSpace(strings.TrimPrefix(line, "Open "))
}

// startUI runs kubectl holdfast ui as the viewer, and opens the address that it prints.
func (c *subject) startUI() uiPages {
	c.t.Helper()
	address, err := url.Parse(c.runUI())
	must(c.t, err, "read the address")
	jar, err := cookiejar.New(nil)
	must(c.t, err, "make a jar for the cookie")
	pages := uiPages{client: &http.Client{Jar: jar, Timeout: requestTimeout}, base: "http://" + address.Host}
	response, err := pages.client.Get(address.String())
	must(c.t, err, "open the address")
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		c.t.Fatalf("the address is answered with %s", response.Status)
	}
	return pages
}

// read reads an endpoint.
func (p uiPages) read(path string, into any) error {
	response, err := p.client.Get(p.base + "/api/" + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// testUI: a viewer's rights are enough for the pages, which name what these lack.
func testUI(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.allowViewer()
	pages := c.startUI()
	var fleet struct {
		Clusters []struct{ Kind, Name, Phase, Primary string }
		Unknown  []string
	}
	must(t, pages.read("fleet", &fleet), "read the fleet")
	if len(fleet.Clusters) != 1 || fleet.Clusters[0].Name != c.name || fleet.Clusters[0].Primary == "" || len(fleet.Unknown) > 0 {
		t.Errorf("the fleet is %+v", fleet)
	}
	var report struct {
		Members []struct {
			Name  string
			Ready bool
		}
		Conditions []metav1.Condition
		Events     []json.RawMessage
		Unknown    []string
	}
	must(t, pages.read("cluster?"+url.Values{"kind": {"PostgresCluster"}, "namespace": {c.namespace}, "name": {c.name}}.Encode(), &report), "read the cluster")
	if len(report.Members) != 2 || !report.Members[0].Ready || !report.Members[1].Ready || len(report.Conditions) == 0 || len(report.Events) == 0 {
		t.Errorf("the cluster is %+v", report)
	}
	if len(report.Unknown) != 1 || !strings.Contains(report.Unknown[0], "pods/proxy") {
		t.Errorf("a viewer lacks %v: only pods/proxy is expected", report.Unknown)
	}
	var backups struct {
		Backups []json.RawMessage
		Unknown []string
	}
	must(t, pages.read("backups", &backups), "read the backups")
	if len(backups.Unknown) > 0 {
		t.Errorf("a viewer lacks %v", backups.Unknown)
	}
	if err := pages.read("cluster?"+url.Values{"kind": {"PostgresCluster"}, "namespace": {"default"}, "name": {"absent"}}.Encode(), &report); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a cluster elsewhere is answered with %v", err)
	}
}
