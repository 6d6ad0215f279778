package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func etcdCluster() *v1alpha1.EtcdCluster {
	return &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "config"}}
}

// degradedEtcd has lost a volume: another member takes the place of the lost one.
func degradedEtcd() Report {
	lost := "the data of member config-2 is lost: another member is to take its place"
	r := Report{
		Kind: "EtcdCluster", Namespace: "shop", Name: "config", Created: timeBefore(5 * time.Hour),
		Version: "3.6.16", Phase: "Degraded", Primary: "config-1", ReadyReplicas: 2, Replicas: 3, Observed: true,
		DriftMode: "Revert", of: etcdKind(),
		Conditions: []metav1.Condition{
			newCondition("Available", metav1.ConditionTrue, "Available", "2 of 3 members serve, config-1 leads"),
			newCondition("Degraded", metav1.ConditionTrue, "MemberDown", lost),
			newCondition("Ready", metav1.ConditionTrue, "Ready", "2 of 3 members serve, config-1 leads"),
			newCondition("Synced", metav1.ConditionTrue, "Synced", "every owned object is as declared"),
		},
		Members: []MemberReport{
			{MemberStatus: v1alpha1.MemberStatus{Name: "config-0", Role: "member", State: "Running", Version: "3.6.16", Node: "node-1"}, Ready: true, SettingsPendingRestart: 1, DataBytes: new(int64(25 << 20)), DataLimitBytes: new(int64(2 << 30))},
			{MemberStatus: v1alpha1.MemberStatus{Name: "config-1", Role: "member", State: "Running", Version: "3.6.16", Node: "node-2"}, Ready: true, DataBytes: new(int64(1800 << 20)), DataLimitBytes: new(int64(2 << 30))},
			{MemberStatus: v1alpha1.MemberStatus{Name: "config-2", Role: "member", State: "Waiting", Node: "node-3", Message: lost}},
		},
	}
	r.addVolumes([]corev1.PersistentVolumeClaim{
		newClaim("data-config-0", "0", "10Gi", "10Gi", corev1.ClaimBound),
		newClaim("data-config-1", "1", "10Gi", "10Gi", corev1.ClaimBound),
		newClaim("data-config-2", "2", "10Gi", "10Gi", corev1.ClaimBound),
	}, nil)
	return r
}

func TestEtcdMetricsAreRead(t *testing.T) {
	const text = `# TYPE holdfast_etcd_data_size_bytes gauge
holdfast_etcd_data_size_bytes 1.048576e+06
# TYPE holdfast_etcd_quota_bytes gauge
holdfast_etcd_quota_bytes 2.147483648e+09
# TYPE holdfast_etcd_settings_pending_restart gauge
holdfast_etcd_settings_pending_restart 2
`
	var m MemberReport
	if err := m.readMetrics(text, etcdKind()); err != nil {
		t.Fatal(err)
	}
	want := MemberReport{DataBytes: new(int64(1 << 20)), DataLimitBytes: new(int64(2 << 30)), SettingsPendingRestart: 2}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestEtcdctlCommandLine(t *testing.T) {
	const files = "--cert=/etc/holdfast/tls/tls.crt --key=/etc/holdfast/tls/tls.key"
	own := etcdCluster()
	own.Spec.TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "bought"}
	for _, test := range []struct {
		name string
		c    *v1alpha1.EtcdCluster
		args string
		want string
	}{
		{"asks the member by its name", etcdCluster(), "get foo",
			"etcdctl --cacert=/etc/holdfast/tls/ca.crt " + files + " --endpoints=https://config-1.config-members.shop.svc:2379 get foo"},
		{"trusts who signed what clients see", own, "get foo",
			"etcdctl --cacert=/etc/holdfast/tls/server-ca.crt " + files + " --endpoints=https://config-1.config-members.shop.svc:2379 get foo"},
		{"asks whom a person names alone", etcdCluster(), "--endpoints localhost:2379 get foo",
			"etcdctl --cacert=/etc/holdfast/tls/ca.crt " + files + " --endpoints localhost:2379 get foo"},
		{"with an equals sign, too", etcdCluster(), "get foo --endpoints=localhost:2379",
			"etcdctl --cacert=/etc/holdfast/tls/ca.crt " + files + " get foo --endpoints=localhost:2379"},
	} {
		got := strings.Join(etcdctlCommandLine(test.c, "config-1", strings.Fields(test.args)), " ")
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func etcdConnection() map[string][]byte {
	return map[string][]byte{
		"endpoints": []byte("https://config-client.shop.svc:2379"), "uri": []byte("https://config-client.shop.svc:2379"),
		"host": []byte("config-client.shop.svc"), "port": []byte("2379"),
		"ca.crt": []byte("roots\n"), "tls.crt": []byte("certificate\n"), "tls.key": []byte("secret\n"),
	}
}

func TestEtcdCredentialsPrint(t *testing.T) {
	compareGolden(t, "credentials-etcd.txt", credentialsPrinted(t, etcdKind(), etcdConnection(), func(output string) bool { return output == "json" }))
}

// TestCredentialsAreWritten: other users cannot read them, even where a file was there
// that all users could read.
func TestCredentialsAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	o := &credentialsOptions{directory: dir, output: "env"}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), []byte("old"), 0o644); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	for range 2 {
		if err := o.writeFiles(etcdKind(), etcdConnection()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path)
		if err != nil || string(content) != string(etcdConnection()[name]) {
			t.Errorf("%s: %q, %v", name, content, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	var out bytes.Buffer
	if err := o.printCredentials(&out, etcdKind(), etcdConnection()); err != nil {
		t.Fatal(err)
	}
	want := "export ETCDCTL_ENDPOINTS=https://config-client.shop.svc:2379\nexport ETCDCTL_CACERT=" + dir + "/ca.crt\n" +
		"export ETCDCTL_CERT=" + dir + "/tls.crt\nexport ETCDCTL_KEY=" + dir + "/tls.key\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestKindsAreComplete: a kind that is added to the table has what every verb
// needs.
func TestKindsAreComplete(t *testing.T) {
	taken := map[string]string{}
	for _, k := range allKinds() {
		if k.engine == "" || k.lead == "" || k.declared == nil || k.client.command == nil || len(k.connection) == 0 {
			t.Errorf("%s is incomplete: %+v", k.gvk.Kind, k)
		}
		if kindOf(k.newCluster()).gvk != k.gvk {
			t.Errorf("%s is not found by its type", k.gvk.Kind)
		}
		for _, name := range append(k.names, k.gvk.Kind) {
			if by := taken[strings.ToLower(name)]; by != "" {
				t.Errorf("%s and %s are both called %s", by, k.gvk.Kind, name)
			}
			taken[strings.ToLower(name)] = k.gvk.Kind
		}
	}
}
