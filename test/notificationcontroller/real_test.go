//go:build notifications

package notificationcontroller

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/notify"
)

const root = "../.."

func TestMain(m *testing.M) { apitest.RunTests(m) }

// alerts are manifests of an Alert in a page.
var alerts = regexp.MustCompile("(?s)```yaml\n(apiVersion: notification[^`]*kind: Alert\n[^`]*)```")

// readAlert is the Alert of the guide, which has a Provider of the name chat.
func readAlert(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/guides/flux.md")
	if err != nil {
		t.Fatal(err)
	}
	found := alerts.FindSubmatch(text)
	if found == nil {
		t.Fatal("the guide has no Alert")
	}
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(found[1], &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// subject of an event, which a Kustomization declares.
func subject(name, kustomization string) *v1alpha1.PostgresCluster {
	return &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{
		"kustomize.toolkit.fluxcd.io/name": kustomization, "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
	}}}
}

// Flux's notification-controller, with the guide's Alert, passes on what the operator posts:
// warnings about databases of the Alert's Kustomization, with the metadata that the guide
// names, and each text once.
func TestNotificationController(t *testing.T) {
	config := apitest.New(t).Config
	controller := New(t, Options{Root: root, Config: config, Host: "127.0.0.1"})
	controller.Start()
	var receiver Receiver
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	alert := readAlert(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: alert.GetNamespace()}}
	for _, o := range []client.Object{namespace, NewProvider(alert.GetNamespace(), "chat", receiver.Listen(t, net.JoinHostPort("127.0.0.1", "0"))), alert} {
		if err := c.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
	recorder, registry := startNotifier(t, controller.URL, c)
	warn := func(about client.Object, text string) {
		recorder.Eventf(about, nil, corev1.EventTypeWarning, v1alpha1.ReasonMemberDown, v1alpha1.ConditionDegraded, "%s", text)
	}
	// The controller's cache may not have the Alert yet, and then it passes nothing on.
	n := 0
	apitest.Eventually(t, "the Alert is in force", func(context.Context) (bool, string) {
		n++
		warn(subject("orders", "apps"), fmt.Sprintf("probe %d", n))
		all := receiver.List()
		return len(all) > 0, fmt.Sprintf("%d notifications", len(all))
	})

	warn(subject("other", "other"), "of another Kustomization")
	recorder.Eventf(subject("orders", "apps"), nil, corev1.EventTypeNormal, v1alpha1.ReasonReady, v1alpha1.ConditionReady, "no warning")
	warn(&v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "by-hand"}}, "declared by nothing")
	for range 2 {
		warn(subject("orders", "apps"), "member orders-1 is away")
	}
	warn(subject("orders", "apps"), "the last")
	has := func(text string) (found []Event) {
		for _, e := range receiver.List() {
			if strings.HasSuffix(e.Message, text) {
				found = append(found, e)
			}
		}
		return found
	}
	apitest.Eventually(t, "the last event is passed on", func(context.Context) (bool, string) {
		return len(has("the last")) == 1 && len(has("is away")) > 0, fmt.Sprintf("%+v", receiver.List())
	})
	away := has("PostgresCluster shop/orders: member orders-1 is away")
	if len(away) != 1 {
		t.Fatalf("%d notifications of the member: %+v", len(away), receiver.List())
	}
	got := away[0]
	if of := got.InvolvedObject; of.Kind != "Kustomization" || of.Namespace != "flux-system" || of.Name != "apps" {
		t.Errorf("about %+v", of)
	}
	if got.Severity != "error" || got.Reason != v1alpha1.ReasonMemberDown || got.ReportingController != "holdfast" ||
		got.Metadata["database"] != "PostgresCluster/shop/orders" || got.Metadata["action"] != v1alpha1.ConditionDegraded {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"of another Kustomization", "no warning", "declared by nothing"} {
		if found := has(text); len(found) > 0 {
			t.Errorf("passed on: %+v", found)
		}
	}
	// The second of two that are equal.
	duplicates, err := testutil.GatherAndCount(registry, "holdfast_notification_posts_total")
	if err != nil || duplicates != 2 {
		t.Errorf("results of %d kinds, want accepted and duplicate: %v", duplicates, err)
	}
}

// startNotifier runs what the operator posts with.
func startNotifier(t *testing.T, url string, reader client.Reader) (events.EventRecorder, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	n, err := notify.New(notify.Options{Address: url, Reader: reader, Scheme: scheme.Scheme, Log: logr.Discard(), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return n.Recorder(events.NewFakeRecorder(1000)), registry
}
