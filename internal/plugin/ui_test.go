package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// uiWith has the rights that allowed grants for a list of a kind in a namespace.
func uiWith(t *testing.T, allowed func(kind, namespace string) bool, objects ...client.Object) *uiOptions {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var o client.ListOptions
			o.ApplyOptions(opts)
			gvk, err := c.GroupVersionKindFor(list)
			if err != nil {
				return err
			}
			kind := strings.TrimSuffix(gvk.Kind, "List")
			if !allowed(kind, o.Namespace) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", nil)
			}
			return c.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, is := obj.(*corev1.Secret); is {
				t.Errorf("the Secret %s was read", key)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			t.Errorf("%s was sent to be created", obj.GetName())
			return errOnlyRead
		},
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
			t.Errorf("%s was sent as a patch", obj.GetName())
			return errOnlyRead
		},
	}).Build()
	return &uiOptions{session: &session{client: c, namespace: "shop"}}
}

var errOnlyRead = errors.New("the pages only read")

func everything(string, string) bool { return true }

func TestFleetEntry(t *testing.T) {
	c := clusterWithAdvice()
	c.Status.Phase = "Ready"
	c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, Reason: "Drifted"})
	e := newFleetEntry(postgresKind(), c)
	if e.Name != "orders" || e.Phase != "Ready" || e.Synced != "Drifted" || e.Backups == nil || len(e.Recommendations) != 2 || e.Recommendations[0].Value != "2GB" {
		t.Errorf("%+v", e)
	}
	if e.TuningMode != "" || e.Tuning != nil {
		t.Errorf("%+v", e.TuningReport)
	}
	// The pages read the fields of an entry by these names.
	text, err := json.Marshal(newFleetEntry(postgresKind(), clusterWithTuning()))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"tuningMode":"Apply"`, `"tuning":{"settings":[{"name":"max_wal_size"`, `"recommendations":[{"field":"spec.parameters.max_wal_size"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in %s", want, text)
		}
	}
}

func TestFleet(t *testing.T) {
	elsewhere := clusterOfThree()
	elsewhere.Namespace = "lab"
	for name, test := range map[string]struct {
		shown    string
		allowed  func(kind, namespace string) bool
		clusters []string
		unknown  []string
	}{
		"all namespaces":                        {"", everything, []string{"lab/orders", "shop/orders"}, nil},
		"the namespace of -n":                   {"lab", everything, []string{"lab/orders"}, nil},
		"only the kubeconfig's may be listed":   {"", func(_, namespace string) bool { return namespace == "shop" }, []string{"shop/orders"}, []string{"PostgresClusters in namespaces other than shop", "MySQLClusters", "EtcdClusters"}},
		"one kind may not be listed":            {"", func(kind, _ string) bool { return kind != "EtcdCluster" }, []string{"lab/orders", "shop/orders"}, []string{"EtcdClusters in namespaces other than shop", "EtcdClusters in namespace shop"}},
		"without any right nothing is an error": {"", func(string, string) bool { return false }, nil, []string{"PostgresClusters in namespace shop", "MySQLClusters", "EtcdClusters"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := uiWith(t, test.allowed, clusterOfThree(), elsewhere)
			o.overrides.Context.Namespace = test.shown
			r, err := o.reportFleet(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range r.Clusters {
				got = append(got, c.Namespace+"/"+c.Name)
			}
			if strings.Join(got, " ") != strings.Join(test.clusters, " ") {
				t.Errorf("clusters %v, want %v", got, test.clusters)
			}
			all := strings.Join(r.Unknown, "\n")
			for _, want := range test.unknown {
				if !strings.Contains(all, want) {
					t.Errorf("%q is not in %s", want, all)
				}
			}
			if len(test.unknown) == 0 && all != "" {
				t.Errorf("unknown: %s", all)
			}
		})
	}
}

func TestBackupsOfFleet(t *testing.T) {
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-1"}, Spec: v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "PostgresCluster", Name: "orders"}}}
	b.Status.Phase, b.Status.Error = "Failed", "the store is full"
	r, err := uiWith(t, everything, b).reportBackups(t.Context())
	if err != nil || len(r.Backups) != 1 || r.Backups[0].Stage != "Failed" || r.Backups[0].Message != "the store is full" || r.Backups[0].Cluster != "orders" {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = uiWith(t, func(string, string) bool { return false }, b).reportBackups(t.Context())
	if err != nil || len(r.Backups) != 0 || len(r.Unknown) != 2 {
		t.Errorf("without rights: %+v, %v", r, err)
	}
}

func TestClusterOfUnknownKind(t *testing.T) {
	_, err := uiWith(t, everything).reportCluster(t.Context(), url.Values{"kind": {"Secret"}, "namespace": {"shop"}, "name": {"orders-app"}})
	if err == nil || !strings.Contains(err.Error(), "no kind of cluster") {
		t.Errorf("%v", err)
	}
}

// The plan is made without a dry run and without Secrets, and again each time.
func TestPlanPage(t *testing.T) {
	o := uiWith(t, everything)
	if page, err := o.reportPlan(t.Context()); err != nil || page.Plan != nil {
		t.Errorf("without files: %+v, %v", page, err)
	}
	o.files = []string{filepath.Join(t.TempDir(), "orders.yaml")}
	if _, err := o.reportPlan(t.Context()); err == nil {
		t.Error("a file that does not exist is no error")
	}
	text := "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\nmetadata: {name: orders, namespace: shop}\nspec: {version: \"17\", storage: {size: 1Gi}}\n"
	if err := os.WriteFile(o.files[0], []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	page, err := o.reportPlan(t.Context())
	if err != nil || page.Plan == nil || len(page.Plan.Clusters) != 1 || page.Plan.Clusters[0].Action != "create" || !strings.Contains(page.Text, "PostgresCluster shop/orders") {
		t.Errorf("%+v, %v", page, err)
	}
}

// runUIWith runs the command without a cluster.
func runUIWith(t *testing.T, args ...string) error {
	t.Helper()
	root := &bytes.Buffer{}
	cmd := uiCommand(&session{client: uiWith(t, everything).client})
	cmd.SetArgs(args)
	cmd.SetOut(root)
	cmd.SetErr(root)
	return cmd.ExecuteContext(t.Context())
}

func TestUIRefusesFlagsThatDoNotFit(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := runUIWith(t, "-f", "-"); err == nil || !strings.Contains(err.Error(), "name a file") {
		t.Errorf("-f -: %v", err)
	}
	if err := runUIWith(t, "--port", port); err == nil || !strings.Contains(err.Error(), "another --port") {
		t.Errorf("a port in use: %v", err)
	}
}
