//go:build apiserver

package argocd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/notification/expression/shared"
	"github.com/argoproj/argo-cd/v3/util/notification/settings"
	"github.com/argoproj/notifications-engine/pkg/api"
	"github.com/argoproj/notifications-engine/pkg/services"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// commits answers what templates may ask of Argo CD, which ours do not.
type commits struct{}

func (commits) GetCommitMetadata(context.Context, string, string, string) (*shared.CommitMetadata, error) {
	return nil, io.EOF
}

func (commits) GetAppDetails(context.Context, *v1alpha1.Application) (*shared.AppDetail, error) {
	return nil, io.EOF
}

// newNotifications is Argo CD's own engine with our triggers and templates, and a service
// that posts to a test.
func newNotifications(t *testing.T, address string) api.API {
	t.Helper()
	text, err := os.ReadFile("../../kustomize/argocd/notifications/argocd-notifications-cm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		t.Fatal(err)
	}
	config.Data["service.webhook.test"] = "url: " + address + "\nheaders: []\n"
	config.Data["context"] = "argocdUrl: https://argocd.example.com\n"
	parsed, err := api.ParseConfig(&config, &corev1.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed.Triggers) != 3 || len(parsed.Templates) != 3 {
		t.Fatalf("%d triggers and %d templates are read", len(parsed.Triggers), len(parsed.Templates))
	}
	// A webhook posts what a template of its own says.
	for name, template := range parsed.Templates {
		template.Webhook = services.WebhookNotifications{"test": {Method: http.MethodPost, Body: template.Message}}
		parsed.Templates[name] = template
	}
	vars, err := settings.GetFactorySettings(commits{}, "", "", false).InitGetVars(parsed, &config, &corev1.Secret{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := api.NewAPI(*parsed, vars)
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// application is one as Argo CD writes it, from the YAML of its status.
func application(t *testing.T, status string) map[string]any {
	t.Helper()
	var app v1alpha1.Application
	if err := yaml.UnmarshalStrict([]byte("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: shop, namespace: argocd}\nstatus:\n"+status), &app); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(app)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

const (
	healthyOrders = `
  resources:
  - {group: holdfast.dev, version: v1alpha1, kind: PostgresCluster, namespace: shop, name: orders, status: Synced}
  - {version: v1, kind: ConfigMap, namespace: shop, name: settings, status: Synced}
  sync: {status: Synced, revision: abc}
  operationState: {phase: Succeeded, startedAt: "2026-03-01T12:00:00Z", operation: {}, syncResult: {revision: abc}}
  health: {status: Healthy}
`
	persistedHealth = `
  resources:
  - {group: holdfast.dev, version: v1alpha1, kind: PostgresCluster, namespace: shop, name: orders, status: Synced, health: {status: Degraded, message: "Stalled/QuotaExceeded: raise the quota"}}
  - {group: holdfast.dev, version: v1alpha1, kind: EtcdCluster, namespace: shop, name: locks, status: Synced, health: {status: Healthy}}
  - {group: apps, version: v1, kind: Deployment, namespace: shop, name: web, status: Synced, health: {status: Degraded, message: "no image"}}
  sync: {status: Synced, revision: abc}
  health: {status: Degraded}
`
	refusedOrders = `
  resources:
  - {group: holdfast.dev, version: v1alpha1, kind: PostgresCluster, namespace: shop, name: orders, status: OutOfSync}
  sync: {status: OutOfSync, revision: abc}
  operationState:
    phase: Failed
    startedAt: "2026-03-01T12:00:00Z"
    operation: {}
    syncResult:
      revision: abc
      resources:
      - {group: holdfast.dev, version: v1alpha1, kind: PostgresCluster, namespace: shop, name: orders, status: SyncFailed, message: "spec.image can never be pulled"}
  health: {status: Healthy}
`
)

// runTriggers are the triggers that fire for an application, in alphabetical order.
func runTriggers(t *testing.T, engine api.API, app map[string]any) []string {
	t.Helper()
	var fired []string
	for _, trigger := range []string{"on-holdfast-degraded", "on-holdfast-ready", "on-holdfast-refused"} {
		results, err := engine.RunTrigger(trigger, app)
		if err != nil {
			t.Fatalf("%s: %v", trigger, err)
		}
		for _, r := range results {
			if r.Triggered {
				fired = append(fired, trigger)
			}
		}
	}
	return fired
}

// Which triggers fire, by what Argo CD says of an application.
func TestNotificationTriggers(t *testing.T) {
	engine := newNotifications(t, "http://127.0.0.1:1")
	otherDegraded := strings.Replace(persistedHealth, "{status: Degraded, message: \"Stalled", "{status: Healthy, message: \"Stalled", 1)
	for name, c := range map[string]struct {
		status string
		want   []string
	}{
		"rolled out": {healthyOrders, []string{"on-holdfast-ready"}},
		"under way":  {strings.Replace(healthyOrders, "Healthy", "Progressing", 1), nil},
		"suspended":  {strings.Replace(healthyOrders, "Healthy", "Suspended", 1), nil},
		"degraded, with health in the application": {persistedHealth, []string{"on-holdfast-degraded"}},
		"degraded, without it":                     {strings.Replace(healthyOrders, "Healthy", "Degraded", 1), []string{"on-holdfast-degraded"}},
		"something else is degraded":               {otherDegraded, nil},
		"no database":                              {strings.ReplaceAll(healthyOrders, "holdfast.dev", "example.com"), nil},
		"refused":                                  {refusedOrders, []string{"on-holdfast-refused"}},
		"new":                                      {"  health: {status: Missing}\n", nil},
		"empty":                                    {"  {}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, runTriggers(t, engine, application(t, c.status))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// textReceiver keeps the last text that it was sent.
type textReceiver struct {
	mu   sync.Mutex
	text string
}

// listen takes texts until the test ends, and returns its URL.
func (r *textReceiver) listen(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.text = string(body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func (r *textReceiver) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.text
	r.text = ""
	return text
}

// What is sent, through Argo CD's own service for webhooks.
func TestNotificationTexts(t *testing.T) {
	var sent textReceiver
	engine := newNotifications(t, sent.listen(t))
	for template, c := range map[string]struct{ status, want string }{
		"holdfast-degraded": {persistedHealth, `Databases of application shop need you:
- PostgresCluster shop/orders: Stalled/QuotaExceeded: raise the quota
https://argocd.example.com/applications/argocd/shop
`},
		"holdfast-ready": {healthyOrders, `Commit abc of application shop is rolled out:
- PostgresCluster shop/orders

`},
		"holdfast-refused": {refusedOrders, `Commit abc of application shop has databases that are refused:
- PostgresCluster shop/orders: spec.image can never be pulled

`},
	} {
		t.Run(template, func(t *testing.T) {
			if err := engine.Send(application(t, c.status), []string{template}, services.Destination{Service: "test", Recipient: "x"}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, sent.take()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// awaitNotified waits until these triggers fire for the Application that Argo CD wrote, and
// sends what they send.
func (w *walk) awaitNotified(when string, triggers ...string) {
	w.t.Helper()
	var app *unstructured.Unstructured
	var fired []string
	w.awaitCondition(fmt.Sprintf("%s: the triggers %v fire", when, triggers), func() bool {
		app = w.app.DeepCopy()
		if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(app), app); err != nil {
			w.t.Fatal(err)
		}
		fired = runTriggers(w.t, w.notifications, app.Object)
		return slices.Equal(fired, triggers)
	})
	words := map[string][]string{
		"on-holdfast-degraded": {"Databases of application orders need you:", ": " + unavailable, "/applications/argocd/orders"},
		"on-holdfast-ready":    {fmt.Sprintf("Commit %040d of application orders is rolled out:", w.git.revision)},
		"on-holdfast-refused":  {fmt.Sprintf("Commit %040d of application orders has databases that are refused:", w.git.revision), "spec.version"},
	}
	for _, trigger := range fired {
		template := strings.TrimPrefix(trigger, "on-")
		if err := w.notifications.Send(app.Object, []string{template}, services.Destination{Service: "test", Recipient: "x"}); err != nil {
			w.t.Fatal(err)
		}
		text := w.sent.take()
		for _, word := range append(words[trigger], "- PostgresCluster orders-production/orders") {
			if !strings.Contains(text, word) {
				w.t.Errorf("%s: %s sends no %q:\n%s", when, trigger, word, text)
			}
		}
	}
}

// notified are the triggers that fire once Argo CD shows a step.
func (w *walk) notified(step row) []string {
	switch {
	case w.liveCluster().GetName() == "":
		return nil // the application has no database left
	case step.shows == "Synced, Healthy":
		return []string{"on-holdfast-ready"}
	case step.shows == "Synced, Degraded":
		return []string{"on-holdfast-degraded"}
	}
	return nil
}
