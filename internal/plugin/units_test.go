package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/exec"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err   error
		code  int
		print bool
	}{
		{nil, 0, false},
		{errors.New("no such cluster"), 1, true},
		{&exitError{code: exitDifferent}, 1, false},
		{fmt.Errorf("diff: %w", &exitError{exitFailed, errors.New("forbidden")}), 2, true},
		{exec.CodeExitError{Err: errors.New("psql"), Code: 3}, 3, false},
	} {
		if code, print := ExitCode(test.err); code != test.code || print != test.print {
			t.Errorf("%v: %d, %t; want %d, %t", test.err, code, print, test.code, test.print)
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	secret := func(password string, extra ...string) map[string]any {
		data := map[string]any{"password": password, "host": "b3JkZXJz"}
		for _, key := range extra {
			data[key] = "c2VjcmV0"
		}
		return map[string]any{
			"metadata": map[string]any{"name": "orders-app", "annotations": map[string]any{
				"kubectl.kubernetes.io/last-applied-configuration": "all of " + password, v1alpha1.AnnotationAppliedHash: "h",
			}},
			"data": data,
		}
	}
	p := apply.Preview{
		Object: apply.ObjectID{GVK: metav1.SchemeGroupVersion.WithKind("Secret"), Name: "orders-app"},
		Live:   secret("cGxhaW4=", "added"), Result: secret("b3RoZXI=", "missing"), Known: true,
	}
	p.Object.GVK.Group, p.Object.GVK.Version = "", "v1"
	got, err := view{now: noon}.renderDiff(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"cGxhaW4=", "b3RoZXI=", "c2VjcmV0", "b3JkZXJz"} {
		if strings.Contains(got, value) {
			t.Errorf("a value is shown: %s", value)
		}
	}
	compareGolden(t, "diff-secret.txt", got)
	if p.Live["data"].(map[string]any)["password"] != "cGxhaW4=" {
		t.Error("masking changed what was compared")
	}
	p.Result = p.Live
	if got, err := (view{now: noon}).renderDiff(p); got != "" || err != nil {
		t.Errorf("equal Secrets differ: %s %v", got, err)
	}
}

func TestDiffNamesWhoAndWhat(t *testing.T) {
	service := func(kind string) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "orders-ro", "namespace": "shop", "uid": "u"},
			"spec": map[string]any{
				"type": kind, "sessionAffinity": "None", "selector": map[string]any{"holdfast.dev/cluster": "orders", "holdfast.dev/role": "replica"},
			},
		}
	}
	since := timeBefore(3 * time.Minute)
	p := apply.Preview{
		Object: apply.ObjectID{Name: "orders-ro"}, Live: service("NodePort"), Result: service("ClusterIP"), Known: true,
		Drifts: []apply.Drift{{Path: ".spec.type", Manager: "kubectl-edit", Operation: "Update", ManagerTime: &since}},
	}
	p.Object.GVK.Version, p.Object.GVK.Kind = "v1", "Service"
	for name, s := range map[string]style{"diff.txt": {}, "diff-colour.txt": {colour: true}} {
		got, err := view{style: s, now: noon}.renderDiff(p)
		if err != nil {
			t.Fatal(err)
		}
		compareGolden(t, name, got)
	}
	p.Live, p.Drifts = nil, nil
	got, err := view{now: noon}.renderDiff(p)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "diff-missing.txt", got)
}

func TestReconcileIsJudged(t *testing.T) {
	const requestID = "now"
	cluster := func(change func(*v1alpha1.PostgresCluster)) *v1alpha1.PostgresCluster {
		c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", Generation: 2}}
		c.Status.LastHandledReconcileAt, c.Status.ObservedGeneration = requestID, 2
		c.Status.Conditions = healthyReport().Conditions
		change(c)
		return c
	}
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.PostgresCluster)
		done   bool
		why    string
	}{
		{"ready", func(*v1alpha1.PostgresCluster) {}, true, ""},
		{"not handled", func(c *v1alpha1.PostgresCluster) { c.Status.LastHandledReconcileAt = "before" }, false, "has not handled"},
		{"an older generation", func(c *v1alpha1.PostgresCluster) { c.Status.ObservedGeneration = 1 }, false, "Ready"},
		{"stalled fails at once", func(c *v1alpha1.PostgresCluster) { c.Status.Conditions = brokenReport().Conditions }, true, "ImageUnavailable: pod orders-0"},
		{"under way", func(c *v1alpha1.PostgresCluster) {
			c.Status.Conditions = []metav1.Condition{
				newCondition("Reconciling", metav1.ConditionTrue, "ScalingUp", "member orders-1 is starting"),
				newCondition("Ready", metav1.ConditionFalse, "ScalingUp", "member orders-1 is starting"),
			}
		}, false, "orders-1 is starting"},
		{"suspended before it was rolled out", func(c *v1alpha1.PostgresCluster) {
			c.Spec.Suspend = true
			c.Status.Conditions = []metav1.Condition{newCondition("Ready", metav1.ConditionFalse, "Suspended", "suspended before this generation was rolled out")}
		}, true, "suspended before"},
		{"being deleted", func(c *v1alpha1.PostgresCluster) { c.DeletionTimestamp = new(timeBefore(0)) }, true, "deleted"},
	} {
		done, why := judgeRequest(cluster(test.change), requestID)
		said := ""
		if why != nil {
			said = why.Error()
		}
		if done != test.done || (said == "") != (test.why == "") || !strings.Contains(said, test.why) {
			t.Errorf("%s: %t, %q; want %t, %q", test.name, done, said, test.done, test.why)
		}
	}
}

func TestMembersAreChosen(t *testing.T) {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"}}
	c.Status.Primary = "orders-0"
	c.Status.Members = []v1alpha1.MemberStatus{{Name: "orders-0", Role: "primary"}, {Name: "orders-1", Role: "member"}, {Name: "orders-2", Role: "replica"}}
	for _, test := range []struct {
		o           execOptions
		want, fails string
	}{
		{execOptions{}, "orders-0", ""},
		{execOptions{replica: true}, "orders-2", ""},
		{execOptions{member: "1"}, "orders-1", ""},
		{execOptions{member: "orders-2"}, "orders-2", ""},
		{execOptions{member: "7"}, "", "orders-0, orders-1, orders-2"},
	} {
		got, err := test.o.chooseMember(c)
		if got != test.want || (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%+v: %q, %v", test.o, got, err)
		}
	}
	c.Status.Primary = ""
	if _, err := (&execOptions{}).chooseMember(c); err == nil || !strings.Contains(err.Error(), "--member") {
		t.Errorf("without a primary: %v", err)
	}
}

func TestCredentialsPrint(t *testing.T) {
	data := map[string][]byte{
		"host": []byte("orders-rw.shop.svc"), "port": []byte("5432"), "username": []byte("app"), "database": []byte("app"), "ca.crt": []byte("roots\n"),
		"password": []byte("it's secret"), "uri": []byte("postgresql://app:it%27s%20secret@orders-rw.shop.svc:5432/app?sslmode=require"),
	}
	compareGolden(t, "credentials.txt", credentialsPrinted(t, postgresKind(), data, func(string) bool { return true }))
	data["uri"] = []byte("secret://%zz")
	if err := (&credentialsOptions{}).printCredentials(io.Discard, postgresKind(), data); err == nil || strings.Contains(err.Error(), "zz") {
		t.Errorf("a broken URI: %v", err)
	}
}

// credentialsPrinted in every format. The secret is shown when it is asked for,
// in the formats that have it.
func credentialsPrinted(t *testing.T, k kind, data map[string][]byte, has func(output string) bool) string {
	t.Helper()
	var all strings.Builder
	for _, output := range []string{"", "env", "json", "uri"} {
		for _, show := range []bool{false, true} {
			var out bytes.Buffer
			if err := (&credentialsOptions{output: output, secrets: show}).printCredentials(&out, k, data); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "secret") != (show && has(output)) {
				t.Errorf("-o %q with the secret %t: %s", output, show, out.String())
			}
			fmt.Fprintf(&all, "# -o %q, --show-password=%t\n%s", output, show, out.String())
		}
	}
	return all.String()
}

func TestColumnsAreAligned(t *testing.T) {
	got := style{}.alignCells([][]cell{
		{{"a", plain}, {"", plain}, {"", plain}, {"x", red}},
		{{"ümlaut", plain}, {"", plain}, {"b", plain}, {"yy", plain}},
	})
	if diff := cmp.Diff([]string{"a          x", "ümlaut  b  yy"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestLinesStayWhole: members write at the same time, and no line is torn.
func TestLinesStayWhole(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	var writing sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		p := &prefixed{mu: &mu, out: &out, prefix: name + " | "}
		writing.Go(func() {
			for range 100 {
				if _, err := p.Write([]byte(strings.Repeat(name, 50))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		if name := line[:1]; line != name+" | "+strings.Repeat(name, 50) {
			t.Fatalf("a torn line: %s", line)
		}
	}
}

func TestNoColourWithoutTerminal(t *testing.T) {
	cmd := statusCommand(&session{})
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.SetOut(file)
	if styleOf(cmd).colour {
		t.Error("a file is coloured")
	}
}

// TestVerbsAreComplete: each has kubectl's flags and says what it does.
func TestVerbsAreComplete(t *testing.T) {
	for _, verb := range NewVerbCommands() {
		if verb.Short == "" || verb.ValidArgsFunction == nil {
			t.Errorf("%s: no help or no completion", verb.Name())
		}
		for _, flag := range []string{"kubeconfig", "context", "namespace"} {
			if verb.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", verb.Name(), flag)
			}
		}
	}
}

// Lines for a shell say how TLS is used: with the CA in a file the server is
// verified, and without it the connection is encrypted at least.
func TestEnvironmentUsesTLS(t *testing.T) {
	data := map[string][]byte{"host": []byte("orders-rw.shop.svc"), "ca.crt": []byte("PEM")}
	for directory, want := range map[string]string{
		"":     "export PGHOST=orders-rw.shop.svc\nexport PGSSLMODE=require",
		"/tls": "export PGHOST=orders-rw.shop.svc\nexport PGSSLROOTCERT=/tls/ca.crt\nexport PGSSLMODE=verify-full",
	} {
		o := &credentialsOptions{directory: directory}
		if got := strings.Join(o.exportLines(postgresKind(), data), "\n"); got != want {
			t.Errorf("with directory %q: %s, want %s", directory, got, want)
		}
	}
	o := &credentialsOptions{}
	if got := o.exportLines(etcdKind(), map[string][]byte{"host": []byte("config")}); len(got) != 0 {
		t.Errorf("etcd's clients are given %q", got)
	}
}

// Flags of the database's client that stand before -- are answered with where
// they go.
func TestClientFlagsFollowTheDashes(t *testing.T) {
	for _, args := range [][]string{{"psql", "orders", "-Atc", "select 1"}, {"etcdctl", "config", "--prefix"}} {
		root := NewRootCommand("test")
		root.SetArgs(args)
		err := root.Execute()
		want := "kubectl holdfast " + args[0] + " NAME -- "
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", args, err, want)
		}
	}
}
