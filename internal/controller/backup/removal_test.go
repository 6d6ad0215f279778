package backup

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/job"
)

// removed has its Job that removes ended so long ago, where that is more than
// nothing.
func removed(how batchv1.JobConditionType, since time.Duration) func(*observation) {
	return func(s *observation) {
		s.job, s.removal = nil, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "orders-1-removal", UID: "r"}}
		if how != "" {
			backupstest.EndJob(s.removal, how)
			s.removal.Status.Conditions[0].LastTransitionTime = ago(since)
		}
	}
}

// removing has a Job that runs and removes WAL, too; but what stays.
func removing(stays *agentapi.LogTask) func(*observation) {
	return func(s *observation) {
		removed("", 0)(s)
		s.removal.Spec = jobOfLog(stays).Spec
	}
}

// jobOfLog is a Job that removes what its task says.
func jobOfLog(stays *agentapi.LogTask) *batchv1.Job {
	task, err := json.Marshal(agentapi.BackupTask{Log: stays})
	if err != nil {
		panic(err)
	}
	job := &batchv1.Job{}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{{Name: agentapi.EnvTask, Value: string(task)}}}}
	return job
}

// The data of a Backup that goes is removed: again and again for a day, and
// never while an attempt writes.
func TestRemoval(t *testing.T) {
	cases := []struct {
		name     string
		deleted  time.Duration // so long ago
		change   func(*observation)
		does     string
		says     string
		leaks    bool
		looksFor time.Duration
	}{
		{"a Job begins", 0, func(s *observation) { s.job = nil }, "Job/orders-1-removal", "", false, job.RecheckInterval},
		{"it waits for who writes to the volume", 0, func(s *observation) { s.job, s.writer = nil, "orders-2" }, "", "orders-2", false, job.RecheckInterval},
		{"it waits for its Job", time.Hour, removed("", 0), "", "", false, 23 * time.Hour},
		{"it goes after it", 0, removed(batchv1.JobComplete, 0), "release", "", false, 0},
		{"also when that came late", 25 * time.Hour, removed(batchv1.JobComplete, 0), "release", "", false, 0},
		{"a failure is no end", time.Hour, removed(batchv1.JobFailed, time.Minute), "", "tried until", false, 9 * time.Minute},
		{"another Job is made after a while", time.Hour, removed(batchv1.JobFailed, 11*time.Minute), "stop", "tried until", false, job.RecheckInterval},
		{"a Job that goes is waited for", time.Hour, func(s *observation) {
			removed(batchv1.JobFailed, 11*time.Minute)(s)
			s.removal.DeletionTimestamp = &metav1.Time{Time: backupstest.Noon}
		}, "", "tried until", false, 23 * time.Hour},
		{"after a day it is left, and that is said", 24 * time.Hour, removed(batchv1.JobFailed, time.Minute), "release", "remove it by hand", true, 0},
		{"a Job that still runs then is waited for", 25 * time.Hour, removed("", 0), "", "", false, job.RecheckInterval},
		{"after a day of restores it is tried still", 25 * time.Hour, func(s *observation) { s.job = nil }, "Job/orders-1-removal", "", false, job.RecheckInterval},
		{"WAL goes by its Job while no reader follows, and that is looked at", time.Hour, removing(&agentapi.LogTask{}), "", "", false, job.RecheckInterval},
		{"it is stopped when somebody goes on with that", time.Hour, func(s *observation) {
			removing(&agentapi.LogTask{})(s)
			s.follower = "copy"
		}, "stop", "cluster copy is being restored with the WAL", false, job.RecheckInterval},
		{"its end is waited for", time.Hour, func(s *observation) {
			removing(&agentapi.LogTask{})(s)
			s.follower, s.removal.DeletionTimestamp = "copy", &metav1.Time{Time: backupstest.Noon}
		}, "", "cluster copy", false, job.RecheckInterval},
		{"one that has failed is replaced in its time", time.Hour, func(s *observation) {
			removed(batchv1.JobFailed, time.Minute)(s)
			s.follower = "copy"
		}, "", "tried until", false, 9 * time.Minute},
		{"it is stopped when somebody is restored from the data", time.Hour, func(s *observation) {
			removed("", 0)(s)
			s.reader = "copy"
		}, "stop", "cluster copy is being restored from it", false, job.RecheckInterval},
		{"a volume that is being deleted takes it along", time.Hour, func(s *observation) {
			removed("", 0)(s)
			s.volume, s.volumeGoes = false, true
		}, "release", "the volume orders-backups is being deleted", false, 0},
		{"who removes the kind keeps the data", 0, func(s *observation) { s.job, s.uninstalled = nil, true }, "release", "stays", false, 0},
		{"whoever wants it to stay need not wait", time.Hour, func(s *observation) {
			removed(batchv1.JobFailed, time.Minute)(s)
			s.backup.Spec.DeletionPolicy = v1alpha1.DeletionRetain
		}, "release", "stays", false, 0},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := begun().with(tc.change)
			at := ago(tc.deleted)
			s.backup.DeletionTimestamp = &at
			p := planBackup(s)
			if got := acts(p); got != tc.does || p.recheck != tc.looksFor || p.warns != tc.leaks {
				t.Errorf("does %q, looks again in %s, warns: %v", got, p.recheck, p.warns)
			}
			if said := p.fact.Message + p.event.Message; !strings.Contains(said, tc.says) {
				t.Errorf("says %q", said)
			}
		})
	}
}

// What a backup that failed has stored goes, unless others need the volume now;
// what a Job could not remove is said.
func TestSweep(t *testing.T) {
	swept := func(how batchv1.JobConditionType) func(*observation) {
		return func(s *observation) {
			s.sweeping = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "orders-1-sweep", UID: "w"}}
			if how != "" {
				backupstest.EndJob(s.sweeping, how)
			}
		}
	}
	cases := []struct {
		name       string
		change     func(*observation)
		does, says string
	}{
		{"a Job that failed", func(*observation) {}, "Job/orders-1-sweep", "why"},
		{"a Job that is gone", func(s *observation) { s.job = nil }, "Job/orders-1-sweep", "why"},
		{"a Job that runs is stopped first", func(s *observation) { s.job.Status.Conditions = nil }, "stop", "why"},
		{"others that write come first", func(s *observation) { s.writer = "orders-2" }, "", "why"},
		{"a volume that is gone", func(s *observation) { s.volume = false }, "", "why"},
		{"nothing was ever begun", func(s *observation) { s.job, s.backup.Status.Location = nil, nil }, "", "why"},
		{"it is being swept", swept(""), "", "why"},
		{"it is swept", swept(batchv1.JobComplete), "", "why"},
		{"it could not be", swept(batchv1.JobFailed), "", "why; what it stored is left at file:///backups, below shop/orders/c/orders-1-0123456789ab/"},
		{"a cluster that is gone", func(s *observation) { s.cluster = nil }, "Job/orders-1-sweep", "why"},
		{"one that is good has nothing to sweep", func(s *observation) { s.backup.Status.Result = backupstest.Result }, "prune", "complete"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := begun()
			backupstest.EndJob(s.job, batchv1.JobFailed)
			s.backup.Status.CompletionTime, s.backup.Status.Error = &metav1.Time{Time: backupstest.Noon}, "why"
			p := planBackup(s.with(tc.change))
			if got := acts(p); got != tc.does || !strings.HasPrefix(p.fact.Message, tc.says) {
				t.Errorf("does %q, says %q", got, p.fact.Message)
			}
			if tc.says == "why" && p.fact.Message != "why" {
				t.Errorf("says %q", p.fact.Message)
			}
		})
	}
}

// Where nothing but the ServiceAccount opens the store, it stays for the
// removal.
func TestAccountStays(t *testing.T) {
	cloud := func(s *observation) {
		s.backup.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme", Prefix: "p/"}
		s.backup.Status.CompletionTime, s.backup.Status.Result = &metav1.Time{Time: backupstest.Noon}, backupstest.Result
	}
	cases := []struct {
		name   string
		change func(*observation)
		keeps  bool
	}{
		{"the account is the key", cloud, true},
		{"without its cluster, too", func(s *observation) { cloud(s); s.cluster = nil }, true},
		{"it is kept already", func(s *observation) {
			cloud(s)
			s.account.OwnerReferences = []metav1.OwnerReference{{UID: s.backup.UID}}
		}, false},
		{"there is none", func(s *observation) { cloud(s); s.account = nil }, false},
		{"a Secret is the key", func(s *observation) { cloud(s); s.backup.Status.Location.CredentialsSecret = "keys" }, false},
		{"a volume needs none", func(s *observation) { cloud(s); s.backup.Status.Location.ClaimName = "orders-backups" }, false},
		{"the data stays", func(s *observation) {
			cloud(s)
			s.backup.Finalizers, s.backup.Spec.DeletionPolicy = nil, v1alpha1.DeletionRetain
		}, false},
		{"the Backup is about to go", func(s *observation) { cloud(s); deleting(s) }, false},
	}
	for _, tc := range cases {
		if p := planBackup(begun().with(tc.change)); p.keepAccount != tc.keeps {
			t.Errorf("%s: %v", tc.name, p.keepAccount)
		}
	}
}

// A Backup whose volume is gone is good no more; another volume of the name does
// not hold it.
func TestDataLost(t *testing.T) {
	s := begun().with(func(s *observation) {
		s.job, s.volume, s.leftovers = nil, false, false
		s.backup.Status.CompletionTime, s.backup.Status.Result = &metav1.Time{Time: backupstest.Noon}, backupstest.Result
	})
	p := planBackup(s)
	lost := &v1alpha1.Backup{Status: p.status}
	if lost.HasSucceeded() || !lost.IsFinished() || p.fact.Reason != v1alpha1.ReasonDataLost || p.fact.Type != v1alpha1.ConditionStalled {
		t.Errorf("%+v", p.fact)
	}
	s.backup.Status, s.volume = p.status, true
	if p := planBackup(s); p.status.DataLost || p.fact.Type != v1alpha1.ConditionReady {
		t.Errorf("a volume that is back: %+v", p.fact)
	}
}

// Jobs that remove run where those of the cluster do, and did when it is gone.
func TestPlacement(t *testing.T) {
	s := begun().with(fresh)
	common := s.cluster.Common()
	common.NodeSelector = map[string]string{"disk": "local"}
	common.Tolerations = []corev1.Toleration{{Key: "databases", Operator: corev1.TolerationOpExists}}
	common.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "mirror"}}
	s.backup.Status = planBackup(s).status
	for _, gone := range []bool{false, true} {
		if gone {
			s.cluster = nil
		} else {
			common.NodeSelector = map[string]string{"disk": "new"}
		}
		want := map[bool]string{false: "new", true: "local"}[gone]
		for name, ac := range map[string]any{"removal": removalJob(s), "sweep": sweepJob(s)} {
			pod := job.ConvertTo[batchv1.Job](ac).Spec.Template.Spec
			if pod.NodeSelector["disk"] != want || len(pod.Tolerations) != 1 || len(pod.ImagePullSecrets) != 1 || pod.ImagePullSecrets[0].Name != "mirror" {
				t.Errorf("%s, cluster gone: %v: %v %v %v", name, gone, pod.NodeSelector, pod.Tolerations, pod.ImagePullSecrets)
			}
		}
	}
}

// Who waits for room on a volume, and who for those that write to it.
func TestSharedVolume(t *testing.T) {
	on := func(name, claim string) *v1alpha1.Backup {
		b := begun().backup
		b.Name, b.UID, b.Status.Location.ClaimName = name, types.UID(name), claim
		return b
	}
	a, b, elsewhere := on("a", "orders-backups"), on("b", "orders-backups"), on("c", "")
	done := on("d", "orders-backups")
	done.Status.CompletionTime = &metav1.Time{Time: backupstest.Noon}
	all := []*v1alpha1.Backup{a, b, elsewhere, done}
	runs := func(*v1alpha1.Backup) (bool, error) { return true, nil }
	for b, want := range map[*v1alpha1.Backup]string{a: "b", b: "a", elsewhere: "", done: "a"} {
		if got, err := writerOf(b, all, runs); got != want || err != nil {
			t.Errorf("%s waits for %q, %v", b.Name, got, err)
		}
	}
	if got, _ := writerOf(done, all, func(*v1alpha1.Backup) (bool, error) { return false, nil }); got != "" {
		t.Errorf("waits for %q, which writes nothing", got)
	}
	var got []string
	for _, since := range []time.Duration{0, 29 * time.Minute, 31 * time.Minute} {
		at := ago(since)
		done.DeletionTimestamp = &at
		got = append(got, leavingOf(all, backupstest.Noon))
	}
	if diff := cmp.Diff([]string{"d", "d", ""}, got); diff != "" {
		t.Errorf("room (-want +got):\n%s", diff)
	}
}

type refusing struct{ forgetting }

func (*refusing) Sync(context.Context, apply.Request) (apply.Result, error) {
	return apply.Result{}, apierrors.NewForbidden(batchv1.Resource("jobs"), "orders-1-removal", errors.New("exceeded quota"))
}

// A quota that refuses the Job does not keep a Backup for ever either.
func TestRemovalRefused(t *testing.T) {
	for deleted, leaves := range map[time.Duration]bool{time.Hour: false, 24 * time.Hour: true} {
		s, at := begun(), ago(deleted)
		s.job, s.backup.DeletionTimestamp = nil, &at
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		recorder := events.NewFakeRecorder(8)
		reader := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(s.backup).WithObjects(s.backup).Build()
		r := &Reconciler{Client: reader, Applier: &refusing{}, Recorder: recorder}
		p := planBackup(s)
		if err := r.applyObjects(t.Context(), s.backup, &p); err != nil {
			t.Fatal(err)
		}
		want := v1alpha1.ReasonForbidden // while it is tried
		if leaves {
			want = v1alpha1.ReasonDataRetained
		}
		if event := <-recorder.Events; p.release != leaves || !strings.Contains(event, want) || len(recorder.Events) > 0 {
			t.Errorf("after %s: goes: %v, with the event %s, and %d more", deleted, p.release, event, len(recorder.Events))
		}
		if !leaves && (p.fact.Reason != v1alpha1.ReasonForbidden || p.recheck == 0) {
			t.Errorf("after %s: %+v, looks again in %s", deleted, p.fact, p.recheck)
		}
	}
}

// The API server's own words tell that the kind of Backups is being deleted.
func TestRemovalKnowsThatTheKindGoes(t *testing.T) {
	backups := v1alpha1.GroupVersion.WithResource("backups").GroupResource()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		says error
		goes bool
	}{
		{"it is there", apierrors.NewAlreadyExists(backups, "orders-1"), false},
		{"a quota is full", apierrors.NewForbidden(backups, "orders-1", errors.New("exceeded quota")), false},
		{"the kind is being deleted", apierrors.NewForbidden(backups, "orders-1", errors.New("create not allowed while custom resource definition is terminating")), true},
		{"as older servers say it", apierrors.NewMethodNotSupported(backups, "create"), true},
	} {
		s, now := begun(), ago(0)
		s.backup.DeletionTimestamp = &now
		asked := false
		create := func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.CreateOption) error {
			asked = slices.Contains(opts, client.CreateOption(client.DryRunAll))
			return tc.says
		}
		r := &Reconciler{Client: interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{Create: create})}
		if err := r.observeKind(t.Context(), &s); err != nil || !asked || s.uninstalled != tc.goes {
			t.Errorf("%s: it goes: %v; asked for a trial only: %v; %v", tc.name, s.uninstalled, asked, err)
		}
	}
}

// Only a Backup that goes takes log along; what a failed one left does not.
func TestLogGoesWithItsBackup(t *testing.T) {
	s := begun()
	s.log = &agentapi.LogTask{Prefix: "p/", Kept: []string{"1:0/2000028"}}
	for _, going := range []bool{false, true} {
		if s.backup.DeletionTimestamp = nil; going {
			s.backup.DeletionTimestamp = &metav1.Time{Time: backupstest.Noon}
		}
		data, err := json.Marshal(removalJob(s))
		if got := strings.Contains(string(data), "1:0/2000028"); got != going || err != nil {
			t.Errorf("going %t: the pod is asked to remove WAL: %t", going, got)
		}
	}
}
