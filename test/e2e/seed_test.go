//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// seed is the whole manifest that a first user writes.
const seed = `
apiVersion: holdfast.dev/v1alpha1
kind: PostgresCluster
metadata: {name: orders}
spec: {version: "17", replicas: 3, storage: {size: 1Gi}, backup: {schedule: "0 2 * * *", retention: 7d}}
`

func seedManifest(t *testing.T) {
	c := newCluster(t, 3, func(obj *v1alpha1.PostgresCluster) {
		name := obj.ObjectMeta
		*obj = v1alpha1.PostgresCluster{}
		must(t, yaml.UnmarshalStrict([]byte(seed), obj), "read the manifest")
		obj.Namespace = name.Namespace
	})
	obj := c.waitReady()
	// What kubectl wait --for=condition=Ready reads.
	if !meta.IsStatusConditionPresentAndEqual(obj.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue) {
		t.Error("kubectl wait would go on waiting")
	}
	nodes := map[string]bool{}
	for _, pod := range c.listPods() {
		nodes[pod.Spec.NodeName] = true
	}
	if len(nodes) != 3 {
		t.Errorf("three members are on %d nodes", len(nodes))
	}
	if n := c.runSQL(leading, streamingOverTLS); n != "2" {
		t.Errorf("%s replicas stream over TLS, want 2", n)
	}
	if obj.Status.ReadyReplicas != 3 || obj.Status.Primary != c.podName(0) || obj.Status.CredentialsSecret != c.name+"-app" || len(obj.Status.Members) != 3 {
		t.Errorf("status says %+v", obj.Status.CommonStatus)
	}
	checkEndpoints(t, c)
}

// checkEndpoints writes through one Service and is refused by the other.
func checkEndpoints(t *testing.T, c *cluster) {
	t.Helper()
	app := newClient(t)
	uri := c.connectionURI()
	if !strings.Contains(uri, c.name+"-rw."+c.namespace) {
		t.Errorf("the uri leads elsewhere than to %s-rw", c.name)
	}
	app.mustPsql(t, uri, "create table orders (id int primary key); insert into orders values (1)")
	readOnly := strings.Replace(uri, c.name+"-rw.", c.name+"-ro.", 1)
	if got := app.mustPsql(t, readOnly, "select pg_is_in_recovery()"); got != "t" {
		t.Errorf("%s-ro leads to a primary", c.name)
	}
	eventually(t, serviceTimeout, "a replica has the row", func(ctx context.Context) error {
		rows, err := app.runPsql(ctx, readOnly, "select id from orders")
		if err == nil && rows != "1" {
			err = fmt.Errorf("rows: %q", rows)
		}
		return err
	})
	_, err := app.runPsql(t.Context(), readOnly, "insert into orders values (2)")
	if err == nil || !strings.Contains(err.Error(), "read-only transaction") {
		t.Errorf("a write through %s-ro: %v", c.name, err)
	}
	have, err := podsBehind(t.Context(), c.namespace, c.name+"-ro")
	must(t, err, "endpoints")
	if want := []string{c.podName(1), c.podName(2)}; !slices.Equal(have, want) {
		t.Errorf("behind %s-ro: %v, want %v", c.name, have, want)
	}
}
