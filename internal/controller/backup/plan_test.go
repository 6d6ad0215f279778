package backup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// begun is a backup whose Job runs.
func begun() observation {
	started := metav1.NewTime(backupstest.Noon.Add(-72 * time.Second))
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-1", UID: "0123456789ab", Generation: 1, Finalizers: []string{v1alpha1.BackupFinalizer}}}
	b.Spec = v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "PostgresCluster", Name: "orders"}, DeletionPolicy: v1alpha1.DeletionDelete}
	b.Status.StartTime, b.Status.Source, b.Status.ClusterUID = &started, "orders-1", "c"
	b.Status.Location = &v1alpha1.BackupLocation{URL: "file:///backups", ClaimName: "orders-backups", ClaimUID: "v", Prefix: "shop/orders/c/orders-1-0123456789ab/"}
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "c"}}
	c.Spec.Backup = &v1alpha1.ClusterBackup{}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "orders-1-copy", UID: "j", CreationTimestamp: metav1.NewTime(backupstest.Noon.Add(-time.Second))}}
	return observation{
		backup: b, cluster: c, agentImage: "holdfast:1", now: backupstest.Noon,
		claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "orders-backups", UID: "v"}}, volume: true,
		backupJobs: backupJobs{job: job, account: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "orders-backup"}}},
		copying:    engine.CopyPlan{Program: "postgres", Image: "postgres:17", Sources: []engine.Source{{Name: "orders-1", Address: "orders-1:5432"}}, Secret: "orders-tls", Expected: 42},
	}
}

// fresh is as it was before it began.
func fresh(s *observation) {
	s.job, s.backup.Status = nil, v1alpha1.BackupStatus{}
}

func (s observation) with(change func(*observation)) observation {
	change(&s)
	return s
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(backupstest.Noon.Add(-d)) }

// another cluster has the name.
func another(s *observation) { s.cluster.SetUID("d") }

func deleting(s *observation) {
	s.backup.DeletionTimestamp = &metav1.Time{Time: backupstest.Noon}
}

// acts is what a plan does, in a few words.
func acts(p plan) string {
	var did []string
	for what, is := range map[string]bool{"finalizer": p.finalizer, "release": p.release, "prune": p.complete, "stop": p.stop != nil, "record": p.mustRecord, "account": p.keepAccount} {
		if is {
			did = append(did, what)
		}
	}
	for _, o := range p.objects {
		data, _ := json.Marshal(o)
		var obj struct {
			Kind     string
			Metadata struct{ Name string }
		}
		_ = json.Unmarshal(data, &obj)
		did = append(did, obj.Kind+"/"+obj.Metadata.Name)
	}
	if len(did) > 1 {
		for i := range did {
			for j := i + 1; j < len(did); j++ {
				if did[j] < did[i] {
					did[i], did[j] = did[j], did[i]
				}
			}
		}
	}
	return strings.Join(did, " ")
}

func TestPlanBackup(t *testing.T) {
	cases := []struct {
		name                string
		change              func(*observation)
		does, phase, reason string // of the condition that is neither Ready
		abnormal            string
	}{
		{"a new one is held until its data is settled", func(s *observation) { s.backup.Finalizers, s.job = nil, nil }, "finalizer", "Pending", "Creating", "Reconciling"},
		{"one whose data stays is held by nothing", func(s *observation) {
			s.backup.Finalizers, s.backup.Spec.DeletionPolicy = nil, v1alpha1.DeletionRetain
		}, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "Copying", "Reconciling"},
		{"one whose data is to stay now is let go", func(s *observation) { s.backup.Spec.DeletionPolicy = v1alpha1.DeletionRetain }, "release", "Pending", "Creating", "Reconciling"},
		{"without its cluster it waits", func(s *observation) { fresh(s); s.cluster = nil }, "", "Pending", "ClusterMissing", "Stalled"},
		{"without a place it waits", func(s *observation) { fresh(s); s.cluster.Common().Backup = nil }, "", "Pending", "BackupNotConfigured", "Stalled"},
		{"where backups are off it waits", func(s *observation) { fresh(s); s.cluster.Common().Backup.Enabled = new(false) }, "", "Pending", "BackupNotConfigured", "Stalled"},
		{"of a suspended cluster it waits", func(s *observation) { s.cluster.Common().Suspend, s.job = true, nil }, "", "Pending", "Suspended", "Stalled"},
		{"without the credentials of the store it waits", func(s *observation) {
			s.missing, s.job = "keys", nil
			s.cluster.Common().Backup = &v1alpha1.ClusterBackup{Destination: &v1alpha1.BackupDestination{URL: "s3://acme"}}
		}, "", "Pending", "SecretMissing", "Stalled"},
		{"behind another one it waits", func(s *observation) { s.ahead, s.job = "orders-0", nil }, "", "Pending", "WaitingForTurn", "Reconciling"},
		{"where as many are made as may be it waits", func(s *observation) { fresh(s); s.most = 20 }, "", "Pending", "Queued", "Reconciling"},
		{"without a member to copy it waits", func(s *observation) { s.copying, s.job = engine.CopyPlan{Waits: "no member serves"}, nil }, "", "Pending", "WaitingForSource", "Reconciling"},
		{"where it goes is on record first", func(s *observation) { s.backup.Status.Location, s.job = nil, nil }, "record", "Copying", "Copying", "Reconciling"},
		{"then its Job begins", func(s *observation) { s.job = nil }, "Job/orders-1-copy Role/orders-1-report RoleBinding/orders-1-report", "Copying", "Copying", "Reconciling"},
		{"a Job that is there is never applied again", func(*observation) {}, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "Copying", "Reconciling"},
		{"without its cluster a Job is stopped", func(s *observation) { s.cluster = nil }, "record stop", "Failed", "BackupFailed", "Stalled"},
		{"another cluster of the name is not copied", another, "record stop", "Failed", "BackupFailed", "Stalled"},
		{"another cluster of the name gets no Job either", func(s *observation) { another(s); s.job = nil }, "record", "Failed", "BackupFailed", "Stalled"},
		{"nor does it for a slot of the lost one", func(s *observation) {
			fresh(s)
			s.backup.Labels = map[string]string{v1alpha1.LabelClusterUID: "before"}
		}, "record", "Failed", "BackupFailed", "Stalled"},
		{"one by hand that has not begun is of the cluster that comes", func(s *observation) { fresh(s); another(s) }, "record", "Copying", "Copying", "Reconciling"},
		{"what was copied before its cluster went is good", func(s *observation) {
			s.cluster, s.backup.Status.Run = nil, &v1alpha1.BackupRun{Result: backupstest.Result}
		}, "prune record", "Completed", "", ""},
		{"backups that are turned off stop it", func(s *observation) { s.cluster.Common().Backup.Enabled = new(false) }, "record stop", "Failed", "BackupFailed", "Stalled"},
		{"suspended, a Job goes on", func(s *observation) { s.cluster.Common().Suspend = true }, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "Copying", "Reconciling"},
		{"a Job without a program for half an hour is abandoned", func(s *observation) { s.job.CreationTimestamp = ago(31 * time.Minute) }, "record stop", "Failed", "BackupFailed", "Stalled"},
		{"and so is one whose pod does not start", func(s *observation) {
			s.job.CreationTimestamp = ago(40 * time.Minute)
			s.pods = []corev1.Pod{podOf("j", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "backup", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}})}
			s.pods[0].CreationTimestamp = ago(31 * time.Minute)
		}, "record stop", "Failed", "BackupFailed", "Stalled"},
		{"one that runs may take longer", func(s *observation) {
			s.job.CreationTimestamp = ago(40 * time.Minute)
			s.backup.Status.Run = &v1alpha1.BackupRun{Step: v1alpha1.BackupStepCopying}
			s.pods = []corev1.Pod{podOf("j", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "backup", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}})}
		}, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "Copying", "Reconciling"},
		{"one that ran just now has another try", func(s *observation) {
			s.job.CreationTimestamp = ago(40 * time.Minute)
			s.backup.Status.Run = &v1alpha1.BackupRun{Step: v1alpha1.BackupStepCopying}
			s.pods = []corev1.Pod{podOf("j", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "backup", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: ago(time.Minute)}}}}})}
		}, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "Copying", "Reconciling"},
		{"a pod on a node that is lost does not run", func(s *observation) {
			s.job.CreationTimestamp = ago(90 * time.Minute)
			s.pods = []corev1.Pod{podOf("j", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "backup", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}})}
			gone := ago(31 * time.Minute)
			s.pods[0].DeletionTimestamp = &gone
		}, "record stop", "Failed", "BackupFailed", "Stalled"},
		{"one that was abandoned stops its Job, also in a later pass", func(s *observation) {
			s.backup.Status.CompletionTime, s.backup.Status.Error = &metav1.Time{Time: backupstest.Noon}, "why"
		}, "stop", "Failed", "BackupFailed", "Stalled"},
		{"what is stored is verified", func(s *observation) {
			s.backup.Status.Run = &v1alpha1.BackupRun{Step: v1alpha1.BackupStepVerifying}
		}, "Role/orders-1-report RoleBinding/orders-1-report", "Verifying", "Verifying", "Reconciling"},
		{"an attempt that failed is not the end", func(s *observation) { s.backup.Status.Run = &v1alpha1.BackupRun{Error: "the store is away"} }, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "Copying", "Reconciling"},
		{"a Job that somebody deletes is waited for", func(s *observation) { s.job.DeletionTimestamp = &metav1.Time{Time: backupstest.Noon} }, "", "Copying", "Copying", "Reconciling"},
		{"a pod that cannot run stalls it", func(s *observation) {
			s.pods = []corev1.Pod{podOf("j", corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no room"}}})}
		}, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "WaitingForSource", "Stalled"},
		{"a Job that gets no pod stalls it", func(s *observation) {
			s.job.CreationTimestamp = metav1.NewTime(backupstest.Noon.Add(-2 * time.Minute))
		}, "Role/orders-1-report RoleBinding/orders-1-report", "Copying", "WaitingForSource", "Stalled"},
		{"a result ends it, whatever became of the Job", func(s *observation) {
			s.backup.Status.Run, s.job = &v1alpha1.BackupRun{Result: backupstest.Result}, nil
		}, "record", "Completed", "", ""},
		{"with the result on record its Job goes", func(s *observation) {
			s.backup.Status.CompletionTime, s.backup.Status.Result = &metav1.Time{Time: backupstest.Noon}, backupstest.Result
		}, "prune", "Completed", "", ""},
		{"a Job that failed ends it", func(s *observation) { backupstest.EndJob(s.job, batchv1.JobFailed) }, "record", "Failed", "BackupFailed", "Stalled"},
		{"a Job that ends without a result has failed", func(s *observation) { backupstest.EndJob(s.job, batchv1.JobComplete) }, "record", "Failed", "BackupFailed", "Stalled"},
		{"the Job of a failed one stays for its log", func(s *observation) {
			backupstest.EndJob(s.job, batchv1.JobFailed)
			s.backup.Status.CompletionTime, s.backup.Status.Error = &metav1.Time{Time: backupstest.Noon}, "why"
			s.sweeping = &batchv1.Job{}
		}, "", "Failed", "BackupFailed", "Stalled"},
		{"on the volume of the cluster it waits for that", func(s *observation) { fresh(s); s.claim = nil }, "", "Pending", "WaitingForTurn", "Reconciling"},
		{"room is made on the volume first", func(s *observation) { fresh(s); s.leaving = "orders-0" }, "", "Pending", "WaitingForTurn", "Reconciling"},
		{"in a store nobody waits for room", func(s *observation) {
			fresh(s)
			s.leaving, s.cluster.Common().Backup.Destination = "orders-0", &v1alpha1.BackupDestination{URL: "s3://acme"}
		}, "record", "Copying", "Copying", "Reconciling"},

		{"deleted while it runs, it is stopped first", deleting, "stop", "Deleting", "Removing", "Reconciling"},
		{"deleted before it began, it goes", func(s *observation) { deleting(s); s.job, s.backup.Status.Location = nil, nil }, "release", "Deleting", "Removing", "Reconciling"},
		{"its data goes before it does", func(s *observation) { deleting(s); s.job = nil }, "Job/orders-1-removal", "Deleting", "Removing", "Reconciling"},
		{"its data stays where it says so", func(s *observation) {
			deleting(s)
			s.job, s.backup.Spec.DeletionPolicy = nil, v1alpha1.DeletionRetain
		}, "release", "Deleting", "Removing", "Reconciling"},
		{"its data stays while it is being restored", func(s *observation) { deleting(s); s.job, s.reader = nil, "copy" }, "", "Deleting", "Removing", "Reconciling"},
		{"with its volume the data is gone", func(s *observation) { deleting(s); s.job, s.volume = nil, false }, "release", "Deleting", "Removing", "Reconciling"},
		{"with a volume that is being deleted, too", func(s *observation) { deleting(s); s.job, s.volume, s.volumeGoes = nil, false, true }, "release", "Deleting", "Removing", "Reconciling"},
		{"what others hold is theirs", func(s *observation) { deleting(s); s.backup.Finalizers = []string{"foregroundDeletion"} }, "", "Deleting", "Removing", "Reconciling"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := begun().with(tc.change)
			p := planBackup(s)
			if got := acts(p); got != tc.does || p.status.Phase != tc.phase {
				t.Errorf("does %q in phase %s", got, p.status.Phase)
			}
			view := &v1alpha1.Backup{Status: p.status}
			for _, abnormal := range []string{"Reconciling", "Stalled"} {
				if has := conditions.Has(view, abnormal); has != (abnormal == tc.abnormal) {
					t.Errorf("%s: %v", abnormal, has)
				}
			}
			if ready := conditions.IsTrue(view, "Ready"); ready != (tc.abnormal == "") || tc.abnormal != "" && conditions.GetReason(view, tc.abnormal) != tc.reason {
				t.Errorf("Ready %v, %s", ready, conditions.GetReason(view, tc.abnormal))
			}
			if p.status.Run != nil || p.status.ObservedGeneration != 1 {
				t.Errorf("%+v", p.status)
			}
		})
	}
}

func podOf(job string, status corev1.PodStatus) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{Kind: "Job", UID: "j", Name: job, Controller: new(true)}}}, Status: status}
}

// What is recorded before the Job begins is all that its removal needs.
func TestBackupPinsItsInputs(t *testing.T) {
	pinned := func(change func(*v1alpha1.ClusterBackup)) v1alpha1.BackupStatus {
		s := begun()
		s.job, s.backup.Status.Location = nil, nil
		change(s.cluster.Common().Backup)
		return planBackup(s).status
	}
	own := pinned(func(*v1alpha1.ClusterBackup) {})
	want := &v1alpha1.BackupLocation{URL: "file:///backups", ClaimName: "orders-backups", ClaimUID: "v", Prefix: "shop/orders/c/orders-1-0123456789ab/"}
	if diff := cmp.Diff(want, own.Location); diff != "" || own.ClusterUID != "c" || own.Source != "orders-1" || !own.StartTime.Time.Equal(backupstest.Noon) {
		t.Errorf("%+v (-want +got):\n%s", own, diff)
	}
	away := pinned(func(b *v1alpha1.ClusterBackup) {
		b.Destination = &v1alpha1.BackupDestination{URL: "s3://acme/pg/", Endpoint: "https://minio", Region: "eu", PathStyle: true, CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}
	})
	want = &v1alpha1.BackupLocation{URL: "s3://acme/pg", Endpoint: "https://minio", Region: "eu", PathStyle: true, CredentialsSecret: "keys", Prefix: "shop/orders/c/orders-1-0123456789ab/"}
	if diff := cmp.Diff(want, away.Location); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The copy knows how much the volume is to take: as it is, or as it was asked
// for while no pod has mounted it. What goes elsewhere has no such bound.
func TestCopyKnowsTheSizeOfTheVolume(t *testing.T) {
	quantity := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	s := begun()
	for _, tc := range []struct {
		asked, has string
		elsewhere  bool
		want       int64
	}{{"2Gi", "0", false, 2 << 30}, {"2Gi", "3Gi", false, 3 << 30}, {"2Gi", "3Gi", true, 0}} {
		s.claim.Spec.Resources.Requests, s.claim.Status.Capacity = quantity(tc.asked), quantity(tc.has)
		if tc.elsewhere {
			s.backup.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme", Prefix: "a/"}
		}
		var task agentapi.BackupTask
		variable := copyJob(s).(*batchv1ac.JobApplyConfiguration).Spec.Template.Spec.Containers[0].Env[0]
		if err := json.Unmarshal([]byte(*variable.Value), &task); err != nil || task.Store.Size != tc.want {
			t.Errorf("%+v: %s, %v", tc, *variable.Value, err)
		}
	}
}

// What Jobs may use at most is passed to those that copy, and to no others.
func TestBandwidth(t *testing.T) {
	s := begun()
	s.cluster.Common().Backup.Bandwidth = resource.NewQuantity(2<<20, resource.BinarySI)
	for job, want := range map[runtime.ApplyConfiguration]int64{copyJob(s): 2 << 20, removalJob(s): 0} {
		var task agentapi.BackupTask
		variable := job.(*batchv1ac.JobApplyConfiguration).Spec.Template.Spec.Containers[0].Env[0]
		if err := json.Unmarshal([]byte(*variable.Value), &task); err != nil || task.Bandwidth != want {
			t.Errorf("%s, want %d: %v", *variable.Value, want, err)
		}
	}
}

// Of any backups of a cluster exactly one has its turn, where no Job runs: two
// that wait for each other would wait for ever.
func TestOneBackupHasItsTurn(t *testing.T) {
	idle := func(*v1alpha1.Backup) (bool, error) { return false, nil }
	for begun := range 16 {
		var all []*v1alpha1.Backup
		for n := range 4 {
			b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", n), UID: types.UID(fmt.Sprint(n))}}
			if begun&(1<<n) != 0 {
				b.Status.StartTime = &metav1.Time{Time: backupstest.Noon}
			}
			all = append(all, b)
		}
		var free []string
		for _, b := range all {
			ahead, err := findBackupAhead(b, all, idle)
			if err != nil {
				t.Fatal(err)
			}
			if ahead == "" {
				free = append(free, b.Name)
			}
			waits, err := findBackupAhead(b, all, func(other *v1alpha1.Backup) (bool, error) { return other == all[3], nil })
			if runs := b != all[3] && begun&8 != 0; err != nil || runs && waits == "" {
				t.Errorf("%04b: %s does not wait for a Job (%v)", begun, b.Name, err)
			}
		}
		if len(free) != 1 {
			t.Errorf("%04b: %v", begun, free)
		}
	}
}

// After each failure another member is copied first.
func TestAnotherMemberAfterAFailure(t *testing.T) {
	sources := []engine.Source{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	failed, good := backupstest.Made("x", 0, "broken page"), backupstest.Made("y", 0, "")
	cases := []struct {
		own   []*v1alpha1.Backup
		order string
	}{
		{nil, "a b c"},
		{[]*v1alpha1.Backup{good}, "a b c"},
		{[]*v1alpha1.Backup{good, failed}, "b c a"},
		{[]*v1alpha1.Backup{good, failed, failed, backupstest.UnderWay(backupstest.Made("z", 0, ""))}, "c a b"},
		{[]*v1alpha1.Backup{failed, failed, failed}, "a b c"},
		{[]*v1alpha1.Backup{failed, failed, good}, "a b c"},
	}
	for n, tc := range cases {
		var order []string
		for _, source := range rotateSources(sources, countFailures(tc.own)) {
			order = append(order, source.Name)
		}
		if got := strings.Join(order, " "); got != tc.order {
			t.Errorf("%d: %s", n, got)
		}
	}
	if got := rotateSources(nil, 3); len(got) != 0 {
		t.Error(got)
	}
}

// The end says when it was, how long it took, and why it failed: in the words
// of the pod where it had any.
func TestBackupEnd(t *testing.T) {
	good := planBackup(begun().with(func(s *observation) { s.backup.Status.Run = &v1alpha1.BackupRun{Result: backupstest.Result} }))
	if st := good.status; st.Duration != "1m12s" || !st.CompletionTime.Time.Equal(backupstest.Noon) || cmp.Diff(backupstest.Result, st.Result) != "" || good.warns || good.event.Reason != v1alpha1.ReasonBackupCompleted {
		t.Errorf("%+v", good)
	}
	cases := []struct {
		name, says string
		change     func(*observation)
	}{
		{"the pod's own words", "no such bucket", func(s *observation) { s.backup.Status.Run = &v1alpha1.BackupRun{Error: "no such bucket"} }},
		{"how the container ended", "OOMKilled", func(s *observation) {
			s.pods = []corev1.Pod{podOf("j", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "backup", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}}})}
		}},
		{"what the Job says", "BackoffLimitExceeded: too many", func(*observation) {}},
	}
	for _, tc := range cases {
		p := planBackup(begun().with(func(s *observation) { backupstest.EndJob(s.job, batchv1.JobFailed); tc.change(s) }))
		if !strings.Contains(p.status.Error, tc.says) || !p.warns || p.status.Result != nil {
			t.Errorf("%s: %q", tc.name, p.status.Error)
		}
	}
}

// Pods of Jobs hold nothing secret in the open, and are no members of the
// cluster to its Services.
func TestBackupJobs(t *testing.T) {
	s := begun().with(func(s *observation) { s.backup.Status.Location.CredentialsSecret = "keys" })
	for name, ac := range map[string]any{"copy": copyJob(s), "removal": removalJob(s)} {
		data, err := json.Marshal(ac)
		if err != nil {
			t.Fatal(err)
		}
		var job batchv1.Job
		if err := json.Unmarshal(data, &job); err != nil {
			t.Fatal(err)
		}
		pod := job.Spec.Template
		if pod.Labels[v1alpha1.LabelKind] == "postgrescluster" || pod.Labels[v1alpha1.LabelCluster] != "orders" {
			t.Errorf("%s: labels %v", name, pod.Labels)
		}
		if pod.Spec.RestartPolicy != corev1.RestartPolicyNever || *job.Spec.PodReplacementPolicy != batchv1.Failed {
			t.Errorf("%s: two attempts may write at once", name)
		}
		mounted := map[string]string{}
		for _, v := range pod.Spec.Volumes {
			switch {
			case v.Secret != nil:
				mounted[v.Name] = "Secret/" + v.Secret.SecretName
			case v.PersistentVolumeClaim != nil:
				mounted[v.Name] = v.PersistentVolumeClaim.ClaimName
			}
		}
		want := map[string]string{"store": "Secret/keys", "backups": "orders-backups"}
		if name == "copy" {
			want["tls"] = "Secret/orders-tls"
		}
		if diff := cmp.Diff(want, mounted); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
		if d := job.Spec.ActiveDeadlineSeconds; d == nil || *d > copySeconds {
			t.Errorf("%s: it may hang for ever", name)
		}
		for _, ctr := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if len(ctr.Resources.Requests) != 2 || len(ctr.Resources.Limits) != 2 {
				t.Errorf("%s: a quota on CPU or memory refuses container %s", name, ctr.Name)
			}
		}
		token := *pod.Spec.AutomountServiceAccountToken
		if pod.Spec.ServiceAccountName != "orders-backup" || token != (name == "copy") {
			t.Errorf("%s: runs as %s, with a token: %v", name, pod.Spec.ServiceAccountName, token)
		}
	}
	if fmt.Sprint(removalJob(s.with(func(s *observation) { s.account, s.cluster = nil, nil }))) == "" {
		t.Error("a removal needs the cluster")
	}
	own := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("4Gi")}}
	s.cluster.Common().Backup.Resources = &own
	if diff := cmp.Diff(own, job.ConvertTo[batchv1.Job](copyJob(s)).Spec.Template.Spec.Containers[0].Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// What the API server refuses is tried again, and said once: a word that comes
// and goes with each try begins the next one. In the end it has failed.
func TestPlanRefusedJob(t *testing.T) {
	refused := func(since time.Duration, reason string) observation {
		s := begun()
		s.job = nil
		said := metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: "no more Jobs", LastTransitionTime: ago(since)}
		s.backup.Status.Conditions = []metav1.Condition{said}
		return s
	}
	for reason, stands := range map[string]bool{
		v1alpha1.ReasonForbidden: true, v1alpha1.ReasonInvalidObject: true, v1alpha1.ReasonNameConflict: true, v1alpha1.ReasonSuspended: false,
	} {
		p := planBackup(refused(time.Minute, reason))
		said := conditions.Get(&v1alpha1.Backup{Status: p.status}, v1alpha1.ConditionStalled)
		if got := said != nil && said.Status == metav1.ConditionTrue && said.Reason == reason && said.Message == "no more Jobs"; got != stands || len(p.objects) == 0 {
			t.Errorf("%s: says %+v, applies %d objects", reason, said, len(p.objects))
		}
	}
	if p := planBackup(refused(job.IdleDeadline+time.Second, v1alpha1.ReasonForbidden)); p.status.CompletionTime == nil || !strings.Contains(p.status.Error, "no more Jobs") {
		t.Errorf("after %s: %+v", job.IdleDeadline, p.status)
	}
}

// While the destination of a cluster is removed, a backup by hand waits, too.
func TestRemovedDestinationHoldsBackupByHand(t *testing.T) {
	c := backupstest.Scheduled()
	c.Spec.Backup = &v1alpha1.ClusterBackup{Schedule: "0 * * * *"}
	c.Status.BackupPlace = &v1alpha1.BackupPlace{URL: "s3://acme/etcd"}
	mine := observation{backup: backupstest.UnderWay(backupstest.ByHand(backupstest.Made("mine", 0, ""))), cluster: c, removed: "s3://acme/etcd", now: backupstest.Noon}
	mine.backup.Spec.ClusterRef = v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "orders"}
	mine.backup.Status.StartTime = nil
	if p := planBackup(mine); p.fact.Reason != v1alpha1.ReasonDestinationRemoved || p.status.Location != nil {
		t.Errorf("%+v, at %+v", p.fact, p.status.Location)
	}
}
