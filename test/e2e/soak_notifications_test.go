//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/notificationcontroller"
)

// TestSoakNotifications: an operator with --events-addr posts events of a cluster that Flux
// applies to Flux's notification-controller, whose Alert selects the Kustomization. While the
// controller is away, commits are rolled out as always. Once it is back, it passes on what
// happens then.
func TestSoakNotifications(t *testing.T) {
	needFlux(t)
	needLocalCluster(t)
	stopInstalled(t)
	controller := notificationcontroller.New(t, notificationcontroller.Options{Root: "../..", Config: env.config, Host: machineAddress})
	controller.Start()
	var receiver notificationcontroller.Receiver
	own := &operator{newNamespace(t, "operator-"), operatorName}
	namespace := newNamespace(t, "")
	createAlert(t, namespace, receiver.Listen(t, net.JoinHostPort("127.0.0.1", "0")))
	own.install(t, namespace, "--events-addr="+controller.URL)
	d := deliverInto(t, namespace, own, nil, "replicas: 2")
	silent := createSubject(t, postgres, namespace, "silent", 1)
	silent.operator = own
	silent.waitReady()

	primary := awaitNotification(t, &receiver, v1alpha1.ReasonPrimaryChanged, "PostgresCluster "+namespace+"/orders: ", "takes writes")
	if of := primary.InvolvedObject; of.Kind != "Kustomization" || of.Namespace != namespace || of.Name != d.k.name || primary.Severity != "info" || primary.ReportingController != "holdfast" {
		t.Errorf("%+v", primary)
	}
	d.commitSmaller("512Mi")
	refused := awaitNotification(t, &receiver, v1alpha1.ReasonStorageShrink, "spec.storage.size")
	if refused.Severity != "error" || refused.Metadata["database"] != "PostgresCluster/"+namespace+"/orders" {
		t.Errorf("%+v", refused)
	}
	d.k.waitReady(d.revertCommit())

	controller.Stop()
	began := time.Now()
	d.commitSpec("labels", "replicas: 2", "podLabels: {team: shop}")
	t.Logf("without the notification-controller a commit is rolled out in %s", time.Since(began).Round(time.Second))
	controller.Start()
	d.commitSmaller("256Mi")
	awaitNotification(t, &receiver, v1alpha1.ReasonStorageShrink, "256Mi")
	d.k.waitReady(d.revertCommit())
	for _, e := range receiver.List() {
		if strings.Contains(e.Message, "/silent") {
			t.Errorf("a cluster that nothing declares is notified of: %+v", e)
		}
	}
}

// createAlert passes on what happens to everything that Kustomizations of a namespace
// declare.
func createAlert(t *testing.T, namespace, address string) {
	t.Helper()
	provider := notificationcontroller.NewProvider(namespace, "chat", address)
	must(t, env.client.Create(t.Context(), provider), "create a Provider")
	t.Cleanup(func() { // the controller, which would let it go, has ended by then
		err := mergePatch(`{"metadata":{"finalizers":null}}`)(context.Background(), provider, "e2e")
		if client.IgnoreNotFound(err) != nil {
			t.Errorf("let the Provider go: %v", err)
		}
	})
	alert := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"providerRef": map[string]any{"name": "chat"}, "eventSeverity": "info",
		"eventSources": []any{map[string]any{"kind": "Kustomization", "name": "*"}},
	}}}
	alert.SetAPIVersion(notificationcontroller.APIVersion)
	alert.SetKind("Alert")
	alert.SetNamespace(namespace)
	alert.SetName("databases")
	must(t, env.client.Create(t.Context(), alert), "create an Alert")
}

// commitSmaller commits a smaller volume, which is refused.
func (d *delivery) commitSmaller(size string) {
	d.t.Helper()
	manifest := strings.Replace(fluxCluster("replicas: 2"), "size: 1Gi", "size: "+size, 1)
	d.commitFiles("a smaller volume", map[string]string{"orders.yaml": manifest})
}

// awaitNotification waits for a notification with a reason and words.
func awaitNotification(t *testing.T, r *notificationcontroller.Receiver, reason string, words ...string) notificationcontroller.Event {
	t.Helper()
	var found notificationcontroller.Event
	eventually(t, readyTimeout, "a notification "+reason, func(context.Context) error {
		all := r.List()
		for _, e := range all {
			if e.Reason == reason && holdsAll(e.Message, words...) == nil {
				found = e
				return nil
			}
		}
		return fmt.Errorf("%d notifications, none with %v: %+v", len(all), words, all)
	})
	return found
}
