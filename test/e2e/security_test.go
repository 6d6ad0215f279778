//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// guardedSecrets are the secrets of a cluster by what they are: passwords and private
// keys, also as Secrets hold them. Of a key, one line of its body.
func (c *cluster) guardedSecrets() map[string]string {
	c.t.Helper()
	out := map[string]string{}
	add := func(what, secret string) {
		out[what] = secret
		out[what+" in base64"] = base64.StdEncoding.EncodeToString([]byte(secret))
	}
	add("the application's password", string(c.readSecret("-app")["password"]))
	for key, value := range c.readSecret("-internal") {
		add("internal "+key, string(value))
	}
	for _, suffix := range []string{"-ca", "-tls"} {
		for key, value := range c.readSecret(suffix) {
			if _, body, isKey := strings.Cut(string(value), "PRIVATE KEY-----\n"); isKey {
				line, _, _ := strings.Cut(body, "\n")
				add(suffix+" "+key, line)
			}
		}
	}
	for what, secret := range out {
		if len(secret) < 16 {
			c.t.Errorf("%s has only %d characters", what, len(secret))
		}
	}
	if len(out) < 6 {
		c.t.Fatalf("a password and two private keys are expected, found %d secrets", len(out)/2)
	}
	return out
}

// secretsStaySecret searches for them wherever more people can read than Secrets:
// after a life with scaling, drift and a restart.
func secretsStaySecret(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	secrets := c.guardedSecrets()
	app := newClient(t)
	_, err := app.runPsql(t.Context(), strings.Replace(c.connectionURI(), ":"+url.QueryEscape(string(c.readSecret("-app")["password"])), ":wrong", 1), "select 1")
	if err == nil {
		t.Error("a wrong password is let in")
	}
	app.mustPsql(t, c.connectionURI(), "select 1")
	_, err = app.runPsql(t.Context(), c.connectionURI(), "select nonsense from nowhere")
	if err == nil {
		t.Error("nonsense is answered")
	}
	drift{"leak", &corev1.Secret{}, "-app", mergePatch(`{"stringData":{"password":"guessed-by-a-person"}}`),
		[]trace{{path: ".data", operation: "Update"}}}.makeAndAwaitReverted(t, c.subject)
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters = map[string]string{"max_connections": "111"} })
	c.waitReady()
	for where, text := range c.publicTexts() {
		for what, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s stands in %s", what, where)
			}
		}
	}
}

// publicTexts is what is read without a right to Secrets.
func (c *cluster) publicTexts() map[string]string {
	c.t.Helper()
	ctx := c.t.Context()
	out := map[string]string{}
	for _, namespace := range []string{c.namespace, operatorNamespace} {
		for name, text := range readLogs(ctx, c.t, namespace) {
			out["the log of "+name] = text
		}
	}
	var events eventsv1.EventList
	var pods corev1.PodList
	var configs corev1.ConfigMapList
	var clusters v1alpha1.PostgresClusterList
	for what, list := range map[string]client.ObjectList{"events": &events, "pods": &pods, "config maps": &configs, "clusters": &clusters} {
		must(c.t, env.client.List(ctx, list, client.InNamespace(c.namespace)), "list "+what)
		data, err := json.Marshal(list)
		must(c.t, err, "marshal "+what)
		out["the "+what] = string(data)
	}
	for _, pod := range c.listPods() {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := runCommand(ctx, c.namespace, pod.Name, "", "bash", "-c", "cat /proc/[0-9]*/"+file+" 2>/dev/null | tr '\\0' ' '")
			must(c.t, err, "read the processes of "+pod.Name)
			out[fmt.Sprintf("/proc/*/%s of %s", file, pod.Name)] = text
		}
		if !strings.Contains(out["/proc/*/cmdline of "+pod.Name], "postgres") {
			c.t.Errorf("no process of PostgreSQL in %s is found", pod.Name)
		}
	}
	return out
}

// clientsUseTLS: who checks the certificate is content, who will not encrypt is
// refused.
func clientsUseTLS(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	app := newClient(t)
	secret := c.readSecret("-app")
	app.writeFile(t, "/tmp/ca.crt", string(secret["ca.crt"]))
	for _, suffix := range []string{"-rw", "-ro"} {
		host := strings.Replace(string(secret["host"]), "-rw.", suffix+".", 1)
		conninfo := func(mode string) string {
			return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=%s sslrootcert=/tmp/ca.crt sslmode=%s",
				host, secret["port"], secret["username"], secret["password"], secret["dbname"], mode)
		}
		if got := app.mustPsql(t, conninfo("verify-full"), "select ssl from pg_stat_ssl where pid = pg_backend_pid()"); got != "t" {
			t.Errorf("%s: the connection is not encrypted", suffix)
		}
		_, err := app.runPsql(t.Context(), conninfo("disable"), "select 1")
		if err == nil || !strings.Contains(err.Error(), "pg_hba.conf") {
			t.Errorf("%s: without TLS: %v", suffix, err)
		}
	}
}
