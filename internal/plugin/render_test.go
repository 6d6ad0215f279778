package plugin

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

// compareGolden compares with a file of testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil { //nolint:gosec // a golden file
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test -update writes it:\n%s", name, diff)
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func timeBefore(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

func newCondition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func newClaim(name, ordinal, size, capacity string, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
	v := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	if ordinal != "" {
		v.Labels[v1alpha1.LabelMember] = ordinal
	}
	v.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	v.Status.Phase = phase
	if capacity != "" {
		v.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	}
	return v
}

// mountingPod is a pod that runs on a volume.
func mountingPod(name, volume string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume},
	}}}
	return pod
}

// healthyReport is a cluster that was scaled down once.
func healthyReport() Report {
	r := Report{
		Kind: "PostgresCluster", Namespace: "shop", Name: "orders", Created: timeBefore(12 * 24 * time.Hour),
		Version: "17.5", Phase: "Ready", Primary: "orders-0", ReadyReplicas: 2, Replicas: 2, Observed: true,
		DriftMode: "Revert", DeclaredBy: "Kustomization flux-system/apps (Flux)", of: postgresKind(),
		Conditions: []metav1.Condition{
			newCondition("Available", metav1.ConditionTrue, "Available", "2 of 2 members serve, orders-0 takes writes"),
			newCondition("Synced", metav1.ConditionTrue, "Synced", "every owned object is as declared"),
			newCondition("Ready", metav1.ConditionTrue, "Ready", "2 of 2 members serve, orders-0 takes writes"),
		},
		Members: []MemberReport{
			{MemberStatus: v1alpha1.MemberStatus{Name: "orders-0", Role: "primary", State: "Running", Version: "17.5", Node: "node-1"}, Ready: true},
			{MemberStatus: v1alpha1.MemberStatus{Name: "orders-1", Role: "replica", State: "Streaming", Version: "17.5", Node: "node-2"}, Ready: true, Restarts: 2, LagSeconds: new(0.04)},
		},
		Drift: []v1alpha1.DriftRecord{{
			Time: timeBefore(26 * time.Minute), Object: "Service/orders-rw", Path: ".spec.selector", Manager: "kubectl-edit", Operation: "Update", Action: "Reverted",
		}},
		Events: []EventReport{
			{Time: timeBefore(26 * time.Minute), Type: "Warning", Reason: "DriftReverted", Count: 3, Message: `Service/orders-rw .spec.selector was changed by "kubectl-edit" (Update)`},
			{Time: timeBefore(3 * time.Hour), Type: "Normal", Reason: "Ready", Count: 1, Message: "2 of 2 members serve, orders-0 takes writes"},
		},
	}
	r.Backups = &BackupsReport{
		Newest: &v1alpha1.LastBackup{Name: "orders-20260301-0200", Time: timeBefore(10 * time.Hour)}, Next: new(metav1.NewTime(noon.Add(14 * time.Hour))),
		Drill: &v1alpha1.DrillStatus{LastTime: new(timeBefore(8 * time.Hour)), Result: v1alpha1.DrillPassed, Backup: "orders-20260301-0200", Duration: "4m12s"},
	}
	r.addVolumes([]corev1.PersistentVolumeClaim{
		newClaim("data-orders-2", "", "10Gi", "10Gi", corev1.ClaimBound),
		newClaim("data-orders-0", "0", "10Gi", "10Gi", corev1.ClaimBound),
		newClaim("data-orders-1", "1", "20Gi", "10Gi", corev1.ClaimBound),
		newClaim("orders-backups", "", "20Gi", "20Gi", corev1.ClaimBound),
	}, nil)
	return r
}

// driftingReport leaves drift alone, and a setting waits for a restart.
func driftingReport() Report {
	r := healthyReport()
	r.DriftMode, r.DeclaredBy, r.RetainedVolumes = "Report", "", nil
	r.Conditions[1] = newCondition("Synced", metav1.ConditionFalse, "Drifted",
		"changed by another client and left alone: Service/orders-ro .spec.type by kubectl-edit, StatefulSet/orders .spec.replicas by kubectl (scale)")
	r.Drift = append([]v1alpha1.DriftRecord{
		{Time: timeBefore(90 * time.Second), Object: "StatefulSet/orders", Path: ".spec.replicas", Manager: "kubectl (scale)", Operation: "Update", Action: "Reported"},
		{Time: timeBefore(3 * time.Minute), Object: "Service/orders-ro", Path: ".spec.type", Manager: "kubectl-edit", Operation: "Update", Action: "Reported"},
	}, r.Drift...)
	r.Events = []EventReport{
		{Time: timeBefore(90 * time.Second), Type: "Warning", Reason: "DriftReported", Count: 1, Message: `StatefulSet/orders .spec.replicas was changed by "kubectl (scale)" (Update)`},
		{Time: timeBefore(3 * time.Minute), Type: "Warning", Reason: "DriftReported", Count: 1, Message: `Service/orders-ro .spec.type was changed by "kubectl-edit" (Update)`},
	}
	return r
}

// brokenReport cannot start: its image does not exist.
func brokenReport() Report {
	fault := "image registry.example/postgres:17: ImagePullBackOff"
	remedy := "pod orders-0, " + fault + ": check spec.version, spec.image and spec.imagePullSecrets"
	r := Report{
		Kind: "PostgresCluster", Namespace: "shop", Name: "orders", Created: timeBefore(90 * time.Second), Phase: "Failed",
		Replicas: 1, Observed: true, DriftMode: "Revert", of: postgresKind(),
		Conditions: []metav1.Condition{
			newCondition("Ready", metav1.ConditionFalse, "ImageUnavailable", remedy),
			newCondition("Stalled", metav1.ConditionTrue, "ImageUnavailable", remedy),
			newCondition("Available", metav1.ConditionFalse, "PrimaryUnavailable", "no member takes writes: pod orders-0: "+fault),
			newCondition("Degraded", metav1.ConditionTrue, "MemberDown", "pod orders-0: "+fault),
			newCondition("Synced", metav1.ConditionTrue, "Synced", "every owned object is as declared"),
		},
		Members: []MemberReport{{MemberStatus: v1alpha1.MemberStatus{
			Name: "orders-0", Role: "member", State: "Starting", Node: "node-1", Message: "pod orders-0: " + fault,
		}}},
		Events: []EventReport{
			{Time: timeBefore(80 * time.Second), Type: "Warning", Reason: "ImageUnavailable", Count: 1, Message: remedy},
			{Time: timeBefore(90 * time.Second), Type: "Normal", Reason: "MemberState", Count: 1, Message: "orders-0 is Starting (member)"},
		},
	}
	r.addVolumes([]corev1.PersistentVolumeClaim{newClaim("data-orders-0", "0", "10Gi", "10Gi", corev1.ClaimBound)}, nil)
	return r
}

// unusualReport has what the others have not: a spec that was not looked at, what may
// not be read, a claim that waits, settings that do, and a long history.
func unusualReport() Report {
	r := healthyReport()
	r.Observed, r.Suspended, r.Phase = false, true, "Suspended"
	r.Restore = &v1alpha1.RestoreStatus{CompletionTime: new(timeBefore(12 * 24 * time.Hour)), Result: &v1alpha1.RestoreResult{Backup: "orders-20260301-0200", EndPosition: "1:0/300100"}}
	r.Conditions = append(r.Conditions,
		newCondition("Degraded", metav1.ConditionTrue, "MemberUnreachable", "the agent of member orders-1 does not answer"),
		newCondition("Reconciling", metav1.ConditionTrue, "Restarting", "member orders-1 needs a restart for max_connections"),
		newCondition("Elsewhere", metav1.ConditionUnknown, "Unknown", "a condition of a newer operator"))
	r.Members[0].SettingsPendingRestart, r.Members[1].SettingsPendingRestart = 1, 2
	r.Members[1].Message, r.Members[1].LagSeconds = "member orders-1 needs a restart for max_connections, shared_buffers", nil
	r.Unknown = []string{"events: forbidden"}
	r.RetainedVolumes[0].Phase = "Lost"
	r.Backups = &BackupsReport{Off: true}
	r.addVolumes([]corev1.PersistentVolumeClaim{
		newClaim("data-orders-3", "", "10Gi", "10Gi", corev1.ClaimBound),
		newClaim("data-orders-4", "", "10Gi", "10Gi", corev1.ClaimBound),
		newClaim("orders-drill-20260301", "", "10Gi", "10Gi", corev1.ClaimBound),
	}, []corev1.Pod{mountingPod("orders-copy", "data-orders-3"), mountingPod("orders-drill", "orders-drill-20260301")})
	r.RetainedVolumes[2].Diverged = true
	r.Election = &v1alpha1.ElectionStatus{Leader: "orders-0", Term: 7, MayLead: []string{"orders-0", "orders-1"}, Unconfirmed: []string{"orders-2"}}
	r.Agent = &v1alpha1.AgentStatus{Image: "registry.example/holdfast:v0.1.0", Available: "registry.example/holdfast:v0.2.0", Outdated: []string{"orders-0", "orders-1"}}
	r.Election.Synchronous = &v1alpha1.SynchronousStatus{State: v1alpha1.SynchronousWaiting, Number: 1, Members: []string{"orders-0", "orders-1"}}
	r.Members[1].Fences = 2
	for range mostDriftsShown {
		r.Drift = append(r.Drift, v1alpha1.DriftRecord{Time: timeBefore(time.Hour), Object: "Service/orders-rw", Operation: "deleted", Action: "Contested"})
	}
	return r
}

func TestStatusPrints(t *testing.T) {
	for name, report := range map[string]Report{
		"healthy": healthyReport(), "drifting": driftingReport(), "broken": brokenReport(), "unusual": unusualReport(), "etcd": degradedEtcd(),
	} {
		for suffix, s := range map[string]style{"": {}, "-colour": {colour: true}} {
			t.Run(name+suffix, func(t *testing.T) {
				v := view{style: s, now: noon}
				var out bytes.Buffer
				if err := v.renderTree(report).writeTree(&out, v.style); err != nil {
					t.Fatal(err)
				}
				if s.colour != strings.Contains(out.String(), "\x1b[") {
					t.Errorf("colour is %t, the output says otherwise", s.colour)
				}
				compareGolden(t, "status-"+name+suffix+".txt", out.String())
			})
		}
	}
}

// TestStatusJSON holds the documented structure.
func TestStatusJSON(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		var out bytes.Buffer
		if err := writeEncoded(&out, format, driftingReport()); err != nil {
			t.Fatal(err)
		}
		compareGolden(t, "status."+format, out.String())
	}
}

func TestHistoryPrints(t *testing.T) {
	v := view{now: noon}
	compareGolden(t, "drift.txt", strings.Join(v.renderHistory(driftingReport().Drift), "\n")+"\n")
}

// TestDocsShowWhatIsPrinted: the pages quote the golden files.
func TestDocsShowWhatIsPrinted(t *testing.T) {
	for page, quoted := range map[string][]string{
		"docs/reference/kubectl-holdfast.md": {"status-healthy.txt", "table.txt", "drift.txt", "diff.txt", "insights.txt"},
		"docs/reference/etcdcluster.md":      {"status-etcd.txt"},
		"docs/guides/plan.md":                {"plan-orders.txt", "plan-priced.txt"},
		"README.md":                          {"status-healthy.txt", "status-drifting.txt", "status-broken.txt"},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range quoted {
			output, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), strings.TrimSpace(string(output))) {
				t.Errorf("%s does not show testdata/%s as it is:\n%s", page, name, output)
			}
		}
	}
}

func TestTablePrints(t *testing.T) {
	lines := (view{now: noon}).renderTable(testClusters(), true)
	compareGolden(t, "table.txt", strings.Join(lines, "\n")+"\n")
	if got := (view{now: noon}).renderTable(testClusters(), false)[0]; strings.Contains(got, "NAMESPACE") {
		t.Errorf("one namespace is named: %s", got)
	}
}

func testClusters() []v1alpha1.Cluster {
	cluster := func(namespace, name string, st v1alpha1.CommonStatus) v1alpha1.Cluster {
		c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: timeBefore(time.Hour)}}
		c.Status.CommonStatus = st
		return c
	}
	// The fault is of its own pod.
	failed := brokenReport().Conditions
	for i := range failed {
		failed[i].Message = strings.ReplaceAll(failed[i].Message, "orders-0", "billing-0")
	}
	config := etcdCluster()
	config.CreationTimestamp, config.Spec.Replicas = timeBefore(time.Hour), new(int32(3))
	config.Status.CommonStatus = v1alpha1.CommonStatus{Phase: "Degraded", Version: "3.6.16", Primary: "config-1", ReadyReplicas: 2, Conditions: degradedEtcd().Conditions}
	return []v1alpha1.Cluster{
		cluster("lab", "new", v1alpha1.CommonStatus{}),
		cluster("shop", "billing", v1alpha1.CommonStatus{Phase: "Failed", Conditions: failed}),
		config,
		cluster("shop", "orders", v1alpha1.CommonStatus{Phase: "Ready", Version: "17.5", Primary: "orders-0", ReadyReplicas: 1, Conditions: healthyReport().Conditions}),
	}
}

func TestMetricsAreRead(t *testing.T) {
	const text = `# TYPE holdfast_pg_replication_lag_seconds gauge
holdfast_pg_replication_lag_seconds 1.5
# TYPE holdfast_pg_settings_pending_restart gauge
holdfast_pg_settings_pending_restart 3
`
	m := MemberReport{MemberStatus: v1alpha1.MemberStatus{Name: "orders-1", Role: v1alpha1.RoleReplica}}
	if err := m.readMetrics(text, postgresKind()); err != nil {
		t.Fatal(err)
	}
	if m.LagSeconds == nil || *m.LagSeconds != 1.5 || m.SettingsPendingRestart != 3 {
		t.Errorf("read %+v", m)
	}
	if err := m.readMetrics("no metrics {", postgresKind()); err == nil {
		t.Error("what is no metrics was read")
	}
}
