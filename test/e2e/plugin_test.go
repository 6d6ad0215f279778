//go:build e2e || soak

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// findPlugin gives the binary that the installed operator was made of the
// plugin's name, once: another build would take a minute of both processors.
var findPlugin = sync.OnceValues(func() (string, error) {
	binary, err := filepath.Abs("../../bin/holdfast")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("%w: run make build first", err)
	}
	dir, err := os.MkdirTemp("", "holdfast-e2e-plugin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubectl-holdfast")
	return path, os.Symlink(binary, path)
})

// runPlugin runs kubectl-holdfast as a person does, and returns its exit code.
func (c *subject) runPlugin(stdin string, args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	path, err := findPlugin()
	must(c.t, err, "find the plugin")
	kubeconfig := os.Getenv("KUBECONFIG")
	if kubeconfig == "" {
		kubeconfig = filepath.Join(state, "kubeconfig")
	}
	// The flags come right after the verb: what follows -- is another program's.
	args = append([]string{args[0], "--kubeconfig", kubeconfig, "-n", c.namespace}, args[1:]...)
	var out, complaints bytes.Buffer
	ctx, cancel := context.WithTimeout(c.t.Context(), readyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaints
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("%v: %v", args, err)
	}
	c.t.Logf("kubectl holdfast %s: %d\n%s%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), out.String(), complaints.String())
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

// pluginPrints runs the plugin and searches for words in what it prints.
func (c *subject) pluginPrints(code int, args []string, words ...string) string {
	c.t.Helper()
	stdout, stderr, got := c.runPlugin("", args...)
	if err := holdsAll(stdout+stderr, words...); err != nil || got != code {
		c.t.Errorf("kubectl holdfast %v: exit code %d, want %d; %v", args, got, code, err)
	}
	return stdout
}

// testPlugin: each verb on a healthy, a drifting and a broken cluster.
func testPlugin(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.waitBehind("-ro", c.podName(1))
	t.Run("Healthy", func(t *testing.T) { pluginOnHealthy(c.withTest(t)) })
	t.Run("Drifting", func(t *testing.T) { pluginOnDrifting(c.withTest(t)) })
	t.Run("Suspended", func(t *testing.T) { pluginSuspends(c.withTest(t)) })
	t.Run("Broken", func(t *testing.T) { pluginOnBroken(createCluster(t, c.namespace, "broken", 1, impossibleImage)) })
}

func impossibleImage(obj *v1alpha1.PostgresCluster) {
	obj.Spec.Image = "registry.invalid/postgres:17"
}

func pluginOnHealthy(c *cluster) {
	c.pluginPrints(0, []string{"status"}, "pg/orders", "2/2", "orders-0", "Ready")
	c.pluginPrints(0, []string{"status", "orders"}, "2/2 ready", "primary orders-0", "lag ", "data-orders-1 1Gi", "Events")
	var report struct {
		Members []struct {
			Name       string   `json:"name"`
			LagSeconds *float64 `json:"lagSeconds"`
		} `json:"members"`
	}
	must(c.t, json.Unmarshal([]byte(c.pluginPrints(0, []string{"status", "orders", "-o", "json"})), &report), "status -o json")
	if len(report.Members) != 2 || report.Members[1].LagSeconds == nil {
		c.t.Errorf("members %+v", report.Members)
	}
	if out := c.pluginPrints(0, []string{"drift", "orders", "--diff"}); out != "" {
		c.t.Errorf("an untouched cluster differs: %s", out)
	}
	c.pluginPrints(0, []string{"reconcile", "orders", "--wait"}, "is as declared")
	const recovery = "select pg_is_in_recovery()"
	if out := c.pluginPrints(0, []string{"psql", "orders", "--", "-Atc", recovery}); out != "f\n" {
		c.t.Errorf("the primary says %q", out)
	}
	if out := c.pluginPrints(0, []string{"psql", "orders", "--replica", "--", "-Atc", recovery}); out != "t\n" {
		c.t.Errorf("a replica says %q", out)
	}
	// What stands on standard input is run, and psql's own exit code is returned.
	out, complaint, code := c.runPlugin("select 6 * 7; select broken;", "psql", "orders", "--", "-At", "-v", "ON_ERROR_STOP=1")
	if out != "42\n" || !strings.Contains(complaint, "broken") || code != 3 {
		c.t.Errorf("a script: %q, %q, exit code %d", out, complaint, code)
	}
	c.pluginPrints(0, []string{"shell", "orders", "--member", "1", "--", "cat", "/etc/hostname"}, "orders-1")
	c.pluginPrints(0, []string{"logs", "orders"}, "orders-0 | ", "orders-1 | ", "ready to accept")
	if out := c.pluginPrints(0, []string{"logs", "orders", "--member", "1", "--tail", "1"}); strings.Count(out, "\n") != 1 {
		c.t.Errorf("one line is %q", out)
	}
	password := string(c.readSecret("-app")["password"])
	if out := c.pluginPrints(0, []string{"credentials", "orders"}, "orders-rw."+c.namespace+".svc"); strings.Contains(out, password) {
		c.t.Error("the password is shown")
	}
	c.pluginPrints(0, []string{"credentials", "orders", "-o", "env", "--show-password"}, "export PGPASSWORD="+password)
}

func pluginOnDrifting(c *cluster) {
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Drift.Mode = v1alpha1.DriftReport })
	c.waitReady()
	var service corev1.Service
	c.readObject(&service, "orders-ro")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"sessionAffinity":"ClientIP","type":"NodePort"}}`))
	must(c.t, env.client.Patch(c.t.Context(), &service, patch, client.FieldOwner("kubectl-edit")), "edit a Service")
	c.waitFor(revertTimeout, "the drift is reported", func(obj *v1alpha1.PostgresCluster) error {
		if obj.Status.Drift == nil || len(obj.Status.Drift.Last) == 0 {
			return errors.New("no drift")
		}
		return nil
	})
	c.pluginPrints(0, []string{"status", "orders"}, "drift is reported only", "Drifted", "kubectl-edit", "--diff shows it")
	c.pluginPrints(0, []string{"drift", "orders"}, "Service/orders-ro", ".spec.type", "kubectl-edit", "Reported")
	shell, t := newDocsShell(c.t, c.namespace), c.t
	if out := shell.runStep(t, "Plugin", "drift"); !strings.Contains(out, ".spec.type") {
		t.Errorf("the drift is %s", out)
	}
	if out := shell.runStep(t, "Plugin", "recorded-drift"); !strings.Contains(out, `"manager":"kubectl-edit"`) {
		t.Errorf("the recorded drift is %s", out)
	}
	c.pluginPrints(1, []string{"drift", "orders", "--diff"}, ".spec.type by kubectl-edit", "-  type: NodePort", "+  type: ClusterIP")
	c.readObject(&service, "orders-ro")
	if service.Spec.Type != corev1.ServiceTypeNodePort {
		c.t.Error("the diff put it back")
	}
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Drift.Mode = v1alpha1.DriftRevert })
	eventually(c.t, revertTimeout, "the drift is put back", func(ctx context.Context) error {
		err := env.client.Get(ctx, c.nameOf("-ro"), &service)
		if err == nil && service.Spec.Type != corev1.ServiceTypeClusterIP {
			err = fmt.Errorf("its type is %s", service.Spec.Type)
		}
		return err
	})
	shell.runStep(t, "Plugin", "diff")
}

func pluginSuspends(c *cluster) {
	c.pluginPrints(0, []string{"suspend", "orders"}, "pg/orders suspended")
	c.pluginPrints(0, []string{"reconcile", "orders", "--wait"}, "suspended: Holdfast reports, and writes nothing but what spec.deletionPolicy asks for")
	c.pluginPrints(0, []string{"resume", "orders"}, "pg/orders resumed")
	c.pluginPrints(0, []string{"reconcile", "orders", "--wait"}, "orders-0 takes writes")
}

func pluginOnBroken(c *cluster) {
	c.waitStalled(v1alpha1.ReasonImageUnavailable, "registry.invalid")
	c.pluginPrints(0, []string{"status", "broken"}, "Failed", "Stalled", "ImageUnavailable", "spec.image", "not ready")
	c.pluginPrints(1, []string{"reconcile", "broken", "--wait"}, "stalled, ImageUnavailable", "spec.image")
	c.pluginPrints(1, []string{"psql", "broken"}, "no member of broken takes writes", "kubectl holdfast status broken")
	c.pluginPrints(1, []string{"logs", "broken"}, "broken-0", "waiting to start")
	c.pluginPrints(1, []string{"status", "nowhere"}, "there are pg/broken, pg/orders")
}
