package postgres

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// trying is a settled cluster whose work_mem is tried at 8MB, and max_wal_size was kept.
func trying(t *testing.T) *world {
	t.Helper()
	w := ledBy(t, 2, 0)
	w.c.Spec.Tuning.Mode = v1alpha1.TuningApply
	w.c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	w.c.Status.RolledOut = &v1alpha1.RolledOutStatus{Generation: w.c.Generation}
	w.c.Status.Tuning = &v1alpha1.TuningStatus{
		Settings: []v1alpha1.TunedSettingStatus{{Name: "max_wal_size", Value: "128MB", From: "64MB", Basis: tune.Spec{Memory: 1 << 30, Volume: w.c.Spec.Storage.Size.Value()}.Basis()}},
		Trial: &v1alpha1.TuningTrialStatus{Name: "work_mem", Value: "8MB", From: "4MB", Primary: "orders-0", SpecHash: memberset.HashFields(listMeasured(w.c)),
			Since: metav1.NewTime(now.Add(-time.Minute))},
	}
	w.changeLeader(0) // with pods for these limits
	return w
}

// Members get what is tuned, below what the spec declares.
func TestTunedParameters(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*world)
		want   map[string]string
	}{
		"as recorded":             {func(*world) {}, map[string]string{"max_wal_size": "128MB", "work_mem": "8MB"}},
		"one is declared":         {func(w *world) { w.c.Spec.Parameters = v1alpha1.Parameters{"work_mem": "5MB"} }, map[string]string{"max_wal_size": "128MB", "work_mem": "5MB"}},
		"both are":                {func(w *world) { w.c.Spec.Parameters = v1alpha1.Parameters{"work_mem": "5MB", "max_wal_size": "1GB"} }, map[string]string{"max_wal_size": "1GB", "work_mem": "5MB"}},
		"one is excluded":         {func(w *world) { w.c.Spec.Tuning.Exclude = []string{"max_wal_size"} }, map[string]string{"work_mem": "8MB"}},
		"another mode":            {func(w *world) { w.c.Spec.Tuning.Mode = v1alpha1.TuningRecommend }, nil},
		"no mode":                 {func(w *world) { w.c.Spec.Tuning = v1alpha1.TuningSpec{} }, nil},
		"it is suspended":         {func(w *world) { w.c.Spec.Suspend = true }, map[string]string{"max_wal_size": "128MB", "work_mem": "8MB"}},
		"more members":            {func(w *world) { w.c.Spec.Replicas = new(int32(3)) }, map[string]string{"max_wal_size": "128MB", "work_mem": "8MB"}},
		"the spec is another one": {func(w *world) { w.c.Spec.Tuning.ObserveHours = new(int32(3)) }, map[string]string{"max_wal_size": "128MB"}},
		"durability is recorded": {func(w *world) {
			w.c.Status.Tuning.Settings[0] = v1alpha1.TunedSettingStatus{Name: "fsync", Value: "off"}
		}, map[string]string{"work_mem": "8MB"}},
		"another major version": {func(w *world) { w.c.Spec.Version = "18" }, map[string]string{"max_wal_size": "128MB"}},
		"nothing is recorded":   {func(w *world) { w.c.Status.Tuning = nil }, nil},
	} {
		w := trying(t)
		c.change(w)
		var tuned []string
		for name := range c.want {
			if _, declared := w.c.Spec.Parameters[name]; !declared {
				tuned = append(tuned, name)
			}
		}
		slices.Sort(tuned)
		if diff := cmp.Diff(tuned, w.config().Tuned); diff != "" {
			t.Errorf("%s: named as tuned (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.want, w.config().Parameters); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Members that still have what was in force before a step are about to take up the next: no
// condition says so. With any other configuration they are behind.
func TestTuningIsNoRepair(t *testing.T) {
	isBehind := func(w *world) bool {
		return findFact(w.plan().Facts, v1alpha1.ConditionReconciling, v1alpha1.ReasonConfiguring) != nil
	}
	w := trying(t)
	tried := hashNow(w)
	trial := w.c.Status.Tuning.Trial
	w.c.Status.Tuning.Trial = nil
	untried := hashNow(w)
	w.c.Status.Tuning.Trial = trial
	if tried == untried || isBehind(w) {
		t.Fatal("a trial is no other configuration, or members that have it are behind")
	}
	w.status(1).ConfigHash = untried
	if isBehind(w) {
		t.Error("a member that is about to try a value is behind")
	}
	w.status(1).ConfigHash = "another"
	if !isBehind(w) {
		t.Error("a member with another configuration is not behind")
	}
	w.status(1).ConfigHash = untried
	w.c.Status.RolledOut.Generation--
	if !isBehind(w) {
		t.Error("a generation counts as rolled out, and a member has another configuration")
	}
	w.c.Status.RolledOut.Generation++
	w.c.Status.Tuning.Trial = nil
	w.c.Status.Tuning.Resting = []v1alpha1.RestingSettingStatus{{Name: "work_mem", Value: "8MB", Since: metav1.NewTime(now.Add(-9 * time.Minute)), Until: metav1.NewTime(now.Add(time.Hour))}}
	w.status(0).ConfigHash = tried
	if isBehind(w) {
		t.Error("a member that is about to roll a value back is behind")
	}
	if wait := w.plan().Recheck; wait <= 0 || wait > time.Minute {
		t.Errorf("it is looked again after %s", wait)
	}
	w.c.Status.Tuning.Resting[0].Since = metav1.NewTime(now.Add(-10 * time.Minute))
	if !isBehind(w) {
		t.Error("a member that kept a value that was rolled back is not behind")
	}
}

// What is decided is recorded, and in force from the next pass on. A member that runs out of
// memory, or refuses the value, ends the trial.
func TestTrialIsDecided(t *testing.T) {
	quarantined := func(w *world) bool {
		s := w.plan().Report.Tuning
		return s.Trial == nil && len(s.Resting) == 1 && s.Resting[0].Quarantined && s.Resting[0].Value == "8MB"
	}
	killed := func(w *world, at time.Time) {
		w.o.Pods[1].Status.ContainerStatuses = append(w.o.Pods[1].Status.ContainerStatuses, corev1.ContainerStatus{
			Name:                 "postgres",
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(at)}},
		})
	}
	for name, c := range map[string]struct {
		change func(*world)
		ends   bool
	}{
		"nothing happens":                   {func(*world) {}, false},
		"a member ran out of memory":        {func(w *world) { killed(w, now) }, true},
		"a member ran out of memory before": {func(w *world) { killed(w, now.Add(-time.Hour)) }, false},
		"its backend was killed": {func(w *world) {
			o := w.o.Members["orders-1"]
			o.Tuning = &agentapi.Tuning{PodUID: string(w.o.Pods[1].UID), Sizing: &agentapi.Sizing{Kills: 1, LastKill: now}}
			w.o.Members["orders-1"] = o
		}, true},
		"a member is not restarted yet": {func(w *world) {
			killed(w, now)
			s := w.o.Pods[1].Status.ContainerStatuses
			last := &s[len(s)-1]
			last.State, last.LastTerminationState = last.LastTerminationState, corev1.ContainerState{}
		}, true},
		"another container ran out of memory": {func(w *world) {
			killed(w, now)
			s := w.o.Pods[1].Status.ContainerStatuses
			s[len(s)-1].Name = "proxy"
		}, false},
		"a replica refuses another setting":   {func(w *world) { w.status(1).ConfigError = "jit: no" }, false},
		"the server refuses another setting":  {func(w *world) { w.status(0).ConfigError = "cannot execute" }, false},
		"the server refuses it and another":   {func(w *world) { w.status(0).ConfigError = "jit: no; work_mem: no" }, true},
		"a replica refuses it":                {func(w *world) { w.status(1).ConfigError = "work_mem: no" }, true},
		"the cluster is suspended":            {func(w *world) { killed(w, now); w.c.Spec.Suspend = true }, false},
		"the server refuses it":               {func(w *world) { w.status(0).ConfigError = "work_mem: no" }, true},
		"the primary leads, and is not known": {func(w *world) { w.status(0).Serving = false }, false},
	} {
		w := trying(t)
		c.change(w)
		plan := w.plan()
		if quarantined(w) != c.ends || !c.ends && (len(plan.Announcements) > 0 || !cmp.Equal(plan.Report.Tuning, w.c.Status.Tuning)) {
			t.Errorf("%s: %+v, announced is %+v", name, plan.Report.Tuning, plan.Announcements)
		}
		blamed := findFact(plan.Facts, v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidParameter) != nil
		if blamed != (strings.Contains(name, "another setting") || strings.Contains(name, "and another")) {
			t.Errorf("%s: the spec is blamed is %v", name, blamed)
		}
		if got := w.config().Parameters["work_mem"]; got != "8MB" {
			t.Errorf("%s: members get %q before it is recorded", name, got)
		}
	}
	w := trying(t)
	w.changeLeader(1)
	for n := range 2 {
		w.status(n).ConfigHash = hashNow(w)
	}
	plan := w.plan()
	if s := plan.Report.Tuning; s.Trial != nil || len(s.Resting) != 1 || s.Resting[0].Quarantined {
		t.Errorf("after a failover: %+v", s)
	}
	if a := plan.Announcements; len(a) != 1 || a[0].Reason != v1alpha1.ReasonTuningRolledBack || !a[0].Warning || a[0].Cause != "work_mem=8MB" {
		t.Errorf("announced is %+v", a)
	}
}

// The fullest volume counts: what a tuned max_wal_size takes of it goes back.
func TestTuningOnAFullVolume(t *testing.T) {
	w := trying(t)
	w.status(1).VolumeSize, w.status(1).VolumeUsed = 100, 84
	if s := w.plan().Report.Tuning; len(s.Settings) != 1 {
		t.Errorf("at 84 %%: %+v", s)
	}
	w.status(1).VolumeUsed = 86
	if s := w.plan().Report.Tuning; len(s.Settings) != 0 || s.Trial == nil || len(s.Resting) != 1 || s.Resting[0].Name != "max_wal_size" {
		t.Errorf("at 86 %%: %+v", s)
	}
}

// What mode Apply does not try says why where it is recommended, in the status of the same
// pass. A suspended cluster keeps what was said, and another mode drops it.
func TestUntriedIsReported(t *testing.T) {
	w := ledBy(t, 2, 0)
	w.c.Spec.Tuning.Mode = v1alpha1.TuningApply
	w.c.Status.RolledOut = &v1alpha1.RolledOutStatus{Generation: w.c.Generation}
	o := w.o.Members["orders-0"]
	o.Tuning = &agentapi.Tuning{Pod: "orders-0", PodUID: string(w.o.Pods[0].UID), Slots: hoursOfWAL(24)}
	o.Tuning.Slots[23].ConfigHash = hashNow(w)
	w.o.Members["orders-0"] = o
	for n := range 2 {
		w.status(n).ConfigHash = hashNow(w)
	}
	w.status(1).VolumeSize, w.status(1).VolumeUsed = 100, 71
	untried := func() *v1alpha1.UntriedStatus {
		t.Helper()
		list := w.plan().Report.Recommendations
		if len(list) != 1 || list[0].Field != "spec.parameters.max_wal_size" {
			t.Fatalf("recommended is %+v", list)
		}
		return list[0].Untried
	}
	u := untried()
	if u == nil || u.Reason != string(tune.VolumeUsage) || !strings.Contains(u.Message, "70 %") || u.Since.IsZero() || w.plan().Report.Tuning != nil {
		t.Fatalf("%+v, tuned is %+v", u, w.plan().Report.Tuning)
	}
	w.c.Status.Recommendations = w.plan().Report.Recommendations
	if again := untried(); !cmp.Equal(u, again) {
		t.Errorf("%+v, and then %+v", u, again)
	}
	w.status(1).VolumeUsed = 69
	if got := w.plan().Report.Tuning; got == nil || got.Trial == nil {
		t.Errorf("with disk space %+v is tried", got)
	}
	w.c.Spec.Suspend = true
	if again := untried(); !cmp.Equal(u, again) {
		t.Errorf("suspended, it says %+v", again)
	}
	w.c.Spec.Suspend, w.c.Spec.Tuning.Mode = false, v1alpha1.TuningRecommend
	if again := untried(); again != nil {
		t.Errorf("with mode Recommend, it says %+v", again)
	}
}

// A member goes on to report that it refuses a value until it has taken up what is in force
// again, and the spec is not blamed meanwhile: for ten minutes, and not for what a person
// declares.
func TestRefusedTrialBlamesNoSpec(t *testing.T) {
	isBlamed := func(w *world) bool {
		return findFact(w.plan().Facts, v1alpha1.ConditionStalled, v1alpha1.ReasonInvalidParameter) != nil
	}
	w := trying(t)
	w.status(0).ConfigError = "work_mem: no"
	w.c.Status.Tuning = w.plan().Report.Tuning
	if w.c.Status.Tuning.Trial != nil || isBlamed(w) {
		t.Errorf("the trial is %+v, the spec is blamed: %v", w.c.Status.Tuning.Trial, isBlamed(w))
	}
	w.status(0).ConfigError = "jit: no"
	if !isBlamed(w) {
		t.Error("another setting is refused, and the spec is not blamed")
	}
	w.status(0).ConfigError = "work_mem: no"
	w.c.Status.RolledOut.Generation--
	if !isBlamed(w) {
		t.Error("a new generation is refused, and the spec is not blamed")
	}
	w.c.Status.RolledOut.Generation++
	w.c.Status.Tuning.Resting[0].Since = metav1.NewTime(now.Add(-10 * time.Minute))
	if !isBlamed(w) {
		t.Error("it is refused for ten minutes, and the spec is not blamed")
	}
}

// Without a mode, and for what is measured then, nothing is recorded.
func TestTuningIsOff(t *testing.T) {
	w := ledBy(t, 2, 0)
	w.c.Status.RolledOut = &v1alpha1.RolledOutStatus{Generation: w.c.Generation}
	o := w.o.Members["orders-0"]
	o.Tuning = &agentapi.Tuning{Pod: "orders-0", PodUID: string(w.o.Pods[0].UID), Slots: hoursOfWAL(24)}
	w.o.Members["orders-0"] = o
	if got := w.plan(); got.Report.Tuning != nil || len(got.Report.Recommendations) != 1 {
		t.Errorf("%+v, recommended is %+v", got.Report.Tuning, got.Report.Recommendations)
	}
	w.c.Spec.Tuning.Mode = v1alpha1.TuningApply
	for n := range 2 {
		w.status(n).ConfigHash = hashNow(w)
	}
	if got := w.plan().Report.Tuning; got != nil {
		t.Errorf("what was measured with another configuration has it try %+v", got)
	}
	o.Tuning.Slots[len(o.Tuning.Slots)-1].ConfigHash = hashNow(w)
	if got := w.plan().Report.Tuning; got == nil || got.Trial == nil || got.Trial.Name != "max_wal_size" || got.Trial.Primary != "orders-0" {
		t.Errorf("mode Apply tries %+v", got)
	}
	if !slices.ContainsFunc(w.plan().Announcements, func(a engine.Announcement) bool { return a.Reason == v1alpha1.ReasonTuningTried && !a.Warning }) {
		t.Errorf("announced is %+v", w.plan().Announcements)
	}
}

// hoursOfWAL are hours up to now in which checkpoints were forced.
func hoursOfWAL(n int) (slots []agentapi.TuningSlot) {
	const mib = 1 << 20
	for h := range n {
		end := now.Add(time.Duration(h-n+1) * time.Hour)
		slots = append(slots, agentapi.TuningSlot{
			Start: end.Add(-time.Hour), End: end, Seconds: 3600, Settings: map[string]float64{"max_wal_size": 64 * mib},
			Sums: map[string]float64{agentapi.TuningCheckpointsRequested: 20, agentapi.TuningWALBytes: 800 * mib, agentapi.TuningTransactions: 1e5},
		})
	}
	return slots
}

// A trial ends when a field is declared otherwise that changes what is measured, and by no
// other one: each field of the spec is one or the other. A field that a later version fills
// with its default is as one that is not declared.
func TestTrialDependsOnWhatIsMeasured(t *testing.T) {
	rows := []struct {
		field  string // as JSON, up to the first dot
		change func(*v1alpha1.PostgresClusterSpec)
		ends   bool
	}{
		{"version", func(s *v1alpha1.PostgresClusterSpec) { s.Version = "17" }, true},
		{"image", func(s *v1alpha1.PostgresClusterSpec) { s.Image = "postgres:other" }, true},
		{"storage.size", func(s *v1alpha1.PostgresClusterSpec) { s.Storage.Size = resource.MustParse("99Gi") }, true},
		{"storage.storageClass", func(s *v1alpha1.PostgresClusterSpec) { s.Storage.StorageClass = "fast" }, true},
		{"storage.autoGrow", func(s *v1alpha1.PostgresClusterSpec) { s.Storage.AutoGrow = &v1alpha1.AutoGrowSpec{} }, false},
		{"parameters, another one", func(s *v1alpha1.PostgresClusterSpec) { s.Parameters["jit"] = "off" }, true},
		{"parameters, another value", func(s *v1alpha1.PostgresClusterSpec) { s.Parameters["work_mem"] = "9MB" }, true},
		{"parameters, an empty one", func(s *v1alpha1.PostgresClusterSpec) { s.Parameters["application_name"] = "" }, true},
		{"resources.limits", func(s *v1alpha1.PostgresClusterSpec) {
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Gi")}
		}, true},
		{"resources.requests", func(s *v1alpha1.PostgresClusterSpec) {
			s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
		}, true},
		{"resources, as other text", func(s *v1alpha1.PostgresClusterSpec) {
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2048Mi")}
		}, false},
		{"synchronous.mode", func(s *v1alpha1.PostgresClusterSpec) {
			s.Synchronous = &v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum}
		}, true},
		{"synchronous, by default", func(s *v1alpha1.PostgresClusterSpec) {
			s.Synchronous = &v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousOff, Number: 1, WhenUnavailable: "Block"}
		}, false},
		{"backup.continuous", func(s *v1alpha1.PostgresClusterSpec) {
			s.Backup = &v1alpha1.ClusterBackup{Continuous: true, Destination: &v1alpha1.BackupDestination{URL: "s3://b"}}
		}, true},
		{"backup.schedule", func(s *v1alpha1.PostgresClusterSpec) { s.Backup = &v1alpha1.ClusterBackup{Schedule: "0 2 * * *"} }, false},
		{"tuning.observeHours", func(s *v1alpha1.PostgresClusterSpec) { s.Tuning.ObserveHours = new(int32(3)) }, true},
		{"tuning.observeHours, by default", func(s *v1alpha1.PostgresClusterSpec) { s.Tuning.ObserveHours = new(int32(24)) }, false},
		{"tuning.window", func(s *v1alpha1.PostgresClusterSpec) {
			s.Tuning.Window = &v1alpha1.TuningWindow{Start: "01:00", End: "02:00"}
		}, false},
		{"tuning.exclude", func(s *v1alpha1.PostgresClusterSpec) { s.Tuning.Exclude = []string{"shared_buffers"} }, false},
		{"imagePullSecrets", func(s *v1alpha1.PostgresClusterSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}} }, false},
		{"replicas", func(s *v1alpha1.PostgresClusterSpec) { s.Replicas = new(int32(3)) }, false},
		{"drift", func(s *v1alpha1.PostgresClusterSpec) { s.Drift.Mode = v1alpha1.DriftRevert }, false},
		{"deletionPolicy", func(s *v1alpha1.PostgresClusterSpec) { s.DeletionPolicy = v1alpha1.DeletionRetain }, false},
		{"progressDeadlineSeconds", func(s *v1alpha1.PostgresClusterSpec) { s.ProgressDeadlineSeconds = new(int32(600)) }, false},
		{"suspend", func(s *v1alpha1.PostgresClusterSpec) { s.Suspend = true }, false},
		{"restore", func(s *v1alpha1.PostgresClusterSpec) { s.Restore = &v1alpha1.ClusterRestore{} }, false},
		{"tls", func(s *v1alpha1.PostgresClusterSpec) {
			s.TLS = v1alpha1.TLSSpec{CASecretRef: &v1alpha1.SecretReference{Name: "x"}}
		}, false},
		{"serviceAccount", func(s *v1alpha1.PostgresClusterSpec) { s.ServiceAccount.Annotations = map[string]string{"a": "b"} }, false},
		{"network", func(s *v1alpha1.PostgresClusterSpec) { s.Network = v1alpha1.NetworkSpec{} }, false},
		{"nodeSelector", func(s *v1alpha1.PostgresClusterSpec) { s.NodeSelector = map[string]string{"a": "b"} }, false},
		{"affinity", func(s *v1alpha1.PostgresClusterSpec) { s.Affinity = &corev1.Affinity{} }, false},
		{"tolerations", func(s *v1alpha1.PostgresClusterSpec) { s.Tolerations = []corev1.Toleration{{}} }, false},
		{"topologySpreadConstraints", func(s *v1alpha1.PostgresClusterSpec) {
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{}}
		}, false},
		{"priorityClassName", func(s *v1alpha1.PostgresClusterSpec) { s.PriorityClassName = "x" }, false},
		{"podLabels", func(s *v1alpha1.PostgresClusterSpec) { s.PodLabels = map[string]string{"a": "b"} }, false},
		{"podAnnotations", func(s *v1alpha1.PostgresClusterSpec) { s.PodAnnotations = map[string]string{"a": "b"} }, false},
		{"failover", func(s *v1alpha1.PostgresClusterSpec) { s.Failover = &v1alpha1.PostgresFailover{} }, false},
		{"bootstrap", func(s *v1alpha1.PostgresClusterSpec) { s.Bootstrap.Database = "app" }, false},
	}
	declared := func() *v1alpha1.PostgresCluster {
		c := &v1alpha1.PostgresCluster{}
		c.Spec.Version, c.Spec.Storage.Size = "16", resource.MustParse("20Gi")
		c.Spec.Parameters = v1alpha1.Parameters{"work_mem": "4MB"}
		c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		return c
	}
	before := memberset.HashFields(listMeasured(declared()))
	judged := map[string]bool{}
	for _, row := range rows {
		field, _, _ := strings.Cut(row.field, ",")
		field, _, _ = strings.Cut(field, ".")
		judged[field] = true
		c := declared()
		row.change(&c.Spec)
		if ends := memberset.HashFields(listMeasured(c)) != before; ends != row.ends {
			t.Errorf("%s: it ends is %v", row.field, ends)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.PostgresClusterSpec]()) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && !judged[name] {
			t.Errorf("spec.%s: say whether a trial ends when it changes", name)
		}
	}
}
