//go:build apiserver

package plugin

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// eachKind runs a test for every kind, in a world of its own, with a cluster
// orders that is not created yet. Of etcd it has one member: no member joins one that
// the members do not speak of.
func eachKind(t *testing.T, test func(t *testing.T, w *world, c v1alpha1.Cluster)) {
	t.Run("MySQLCluster", func(t *testing.T) {
		w := newWorld(t)
		test(t, w, &v1alpha1.MySQLCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"},
			Spec: v1alpha1.MySQLClusterSpec{
				CommonSpec: v1alpha1.CommonSpec{Replicas: new(int32(3)), Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
				Version:    "9.7.4", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
			},
		})
	})
	t.Run("PostgresCluster", func(t *testing.T) {
		w := newWorld(t)
		test(t, w, w.NewPostgresCluster("orders", 2))
	})
	t.Run("EtcdCluster", func(t *testing.T) {
		w := newWorld(t)
		test(t, w, w.newEtcdCluster("orders"))
	})
}

func (w *world) newEtcdCluster(name string) *v1alpha1.EtcdCluster {
	return &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.EtcdClusterSpec{
			CommonSpec: v1alpha1.CommonSpec{Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Version:    "3.6.16", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
}

func storageOf(c v1alpha1.Cluster) *v1alpha1.StorageSpec {
	switch c := c.(type) {
	case *v1alpha1.EtcdCluster:
		return &c.Spec.Storage
	case *v1alpha1.MySQLCluster:
		return &c.Spec.Storage
	}
	return &c.(*v1alpha1.PostgresCluster).Spec.Storage
}

// newSession is one of a person's own.
func (w *world) newSession(cfg *rest.Config) *session {
	w.t.Helper()
	s := &session{namespace: w.Namespace}
	w.mustSucceed(s.makeClients(rest.CopyConfig(cfg)))
	return s
}

func TestDiffOfEtcd(t *testing.T) {
	w := newWorld(t)
	c := w.newEtcdCluster("config")
	w.awaitApplied(w.createCluster(c))
	w.mustRun("suspend", "config")
	w.awaitStatus(c, "suspended", func() bool { return c.Status.Phase == "Suspended" })

	w.patchObject(&corev1.Service{}, "config-client", `{"spec":{"selector":{"app":"mine"}}}`)
	w.patchObject(&corev1.Secret{}, "config-app", `{"stringData":{"endpoints":"https://elsewhere.example:2379"}}`)
	body := `{"spec":{"template":{"spec":{"containers":[{"name":"etcd","image":"evil:1"}]}}}}`
	w.mustSucceed(w.person.Patch(t.Context(), statefulSet(c), client.RawPatch(types.StrategicMergePatchType, []byte(body))))
	w.mustSucceed(w.person.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "config-members"}}))

	out, notes, err := w.runPlugin("drift", "ec/config", "--diff")
	if code, _ := ExitCode(err); code != exitDifferent || notes != "" {
		t.Fatalf("exit code %d: %v\n%s", code, err, notes)
	}
	mustContain(t, out,
		".spec.selector by kubectl-edit (Update", "-    app: mine\n",
		"-  endpoints: '*** (before)'\n+  endpoints: '*** (after)'\n",
		"-        image: evil:1\n+        image: registry.example/etcd:v3.6.16\n",
		"# Service/config-members is missing", "+++ declared/service/config-members")
}

func TestCredentialsOfEtcd(t *testing.T) {
	w := newWorld(t)
	w.awaitApplied(w.createCluster(w.newEtcdCluster("config")))
	dir := t.TempDir()
	out, complaints := w.mustRun("credentials", "config", "-o", "env", "--directory", dir)
	mustContain(t, complaints, "Written to "+dir+": ca.crt, tls.crt, tls.key")
	mustContain(t, out, "export ETCDCTL_ENDPOINTS=https://config-client."+w.Namespace+".svc:2379\n", "export ETCDCTL_KEY="+dir+"/tls.key\n")
	out, complaints = w.mustRun("credentials", "config")
	mustContain(t, out, "endpoints  https://config-client."+w.Namespace+".svc:2379\n")
	mustContain(t, complaints, "--directory")
	out, _ = w.mustRun("credentials", "config", "-o", "json")
	mustContain(t, out, "BEGIN CERTIFICATE")
	if strings.Contains(out, "PRIVATE KEY") {
		t.Errorf("the key is shown: %s", out)
	}
}

// TestNamesakes: two kinds have a cluster of the same name.
func TestNamesakes(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.createOrders()
	w.createCluster(w.newEtcdCluster("orders"))
	w.createCluster(w.newEtcdCluster("config"))
	w.mustFail(1, "as in pg/orders", "status", "orders")
	out, _ := w.mustRun("status", "EtcdCluster/orders")
	mustContain(t, out, "EtcdCluster "+w.Namespace+"/orders", "leader -")
	out, _ = w.mustRun("status")
	mustContain(t, out, "pg/orders", "ec/orders", "ec/config")
	out, _ = w.mustRun("suspend", "ec/orders")
	mustContain(t, out, "ec/orders suspended")
	if c, err := postgresKind().getCluster(t.Context(), w.person, client.ObjectKey{Namespace: w.Namespace, Name: "orders"}); err != nil || c.Common().Suspend {
		t.Errorf("its namesake: %+v, %v", c, err)
	}
	// A verb of one kind means that kind, and says which one is the other's.
	w.mustFail(1, "no member of orders takes writes", "psql", "orders")
	w.mustFail(1, "ec/config is no PostgresCluster: kubectl holdfast etcdctl config -n "+w.Namespace, "psql", "config")
	w.mustFail(1, "pg/orders is no EtcdCluster: kubectl holdfast psql orders", "etcdctl", "pg/orders")
	w.mustFail(1, "has no shell: kubectl holdfast etcdctl config -n "+w.Namespace, "shell", "config")
	w.mustFail(1, "there are ec/config, pg/orders, ec/orders", "status", "nope")
}

func TestNamesAreCompleted(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.createOrders()
	w.createCluster(w.newEtcdCluster("orders"))
	w.createCluster(w.newEtcdCluster("config"))
	s := w.newSession(w.Config)
	cmd := suspendCommand(s)
	cmd.SetContext(t.Context())
	for _, test := range []struct {
		of    []kind
		typed string
		want  []string
	}{
		{allKinds(), "c", []string{"config"}},
		{allKinds(), "or", []string{"pg/orders", "ec/orders"}},
		{allKinds(), "ec/", []string{"ec/config", "ec/orders"}},
		{allKinds(), "etcdcluster/c", []string{"etcdcluster/config"}},
		{allKinds(), "my/", nil},
		{allKinds(), "x", nil},
		{[]kind{etcdKind()}, "", []string{"config", "orders"}},
		{[]kind{postgresKind()}, "o", []string{"orders"}},
	} {
		offered, _ := s.completeNames(test.of...)(cmd, nil, test.typed)
		var names []string
		for _, o := range offered {
			name, _, _ := strings.Cut(o, "\t")
			names = append(names, name)
		}
		if !slices.Equal(names, test.want) {
			t.Errorf("%q of %d kinds: %v, want %v", test.typed, len(test.of), names, test.want)
		}
	}
}

// TestOneKindOnly: a person who may read one kind of cluster works with that.
func TestOneKindOnly(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.createOrders()
	w.grantRights("tenant", rbacv1.PolicyRule{APIGroups: []string{"holdfast.dev"}, Resources: []string{"postgresclusters"}, Verbs: []string{"get", "list"}})
	tenant := rest.CopyConfig(w.Config)
	tenant.Impersonate.UserName = "tenant"
	apitest.Eventually(t, "the tenant's rights", func(context.Context) (bool, string) {
		_, complaints, err := runPlugin(t, tenant, w.Namespace, "status")
		return err == nil, complaints
	})
	out, complaints, err := runPlugin(t, tenant, w.Namespace, "status")
	w.mustSucceed(err)
	mustContain(t, out, "pg/orders")
	mustContain(t, complaints, "warning: list MySQLClusters: ", "list EtcdClusters: ", "forbidden")
	out, _, err = runPlugin(t, tenant, w.Namespace, "status", "orders")
	w.mustSucceed(err)
	mustContain(t, out, "PostgresCluster "+w.Namespace+"/orders")
	_, _, err = runPlugin(t, tenant, w.Namespace, "status", "config")
	if err == nil || !strings.Contains(err.Error(), "read EtcdCluster config in namespace "+w.Namespace) {
		t.Errorf("what may be there or not: %v", err)
	}
}

// TestUnknownKind: an API server may know only some of the kinds.
func TestUnknownKind(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.createOrders()
	lacks := func(unknown ...string) *session {
		s := w.newSession(w.Config)
		watching, err := client.NewWithWatch(w.Config, client.Options{Scheme: s.client.Scheme()})
		w.mustSucceed(err)
		s.client = interceptor.NewClient(watching, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if asked, is := obj.(v1alpha1.Cluster); is && slices.Contains(unknown, kindOf(asked).gvk.Kind) {
					return &meta.NoKindMatchError{GroupKind: kindOf(asked).gvk.GroupKind()}
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		return s
	}
	if c, err := lacks("EtcdCluster").findCluster(t.Context(), "orders"); err != nil || nameOf(c) != "pg/orders" {
		t.Errorf("without EtcdCluster: %v, %v", c, err)
	}
	if _, err := lacks("EtcdCluster").findCluster(t.Context(), "nope"); err == nil || !strings.Contains(err.Error(), "there are pg/orders") {
		t.Errorf("without EtcdCluster, what is not there: %v", err)
	}
	if _, err := lacks("EtcdCluster", "MySQLCluster", "PostgresCluster").findCluster(t.Context(), "orders"); err == nil || !strings.Contains(err.Error(), "install Holdfast") {
		t.Errorf("without Holdfast: %v", err)
	}
}
