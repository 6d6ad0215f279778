package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// fetching is a restore whose Job runs.
func fetching() restoreObservation {
	began := metav1.NewTime(backupstest.Noon.Add(-72 * time.Second))
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "copy", UID: "c-uid", Generation: 1}}
	c.Spec.Restore = &v1alpha1.ClusterRestore{Backup: "orders-1"}
	c.Status.Restore = &v1alpha1.RestoreStatus{Backup: "orders-1", Manifest: "m", Checksum: "sha256:0", StartTime: &began,
		Location: &v1alpha1.BackupLocation{URL: "file:///backups", ClaimName: "orders-backups", Prefix: "shop/orders/"}}
	s := restoreObservation{
		cluster: c, kind: "PostgresCluster", agentImage: "holdfast:1", now: backupstest.Noon, volume: true,
		how: engine.RestorePlan{
			Program: "postgres", Image: "postgres:17", User: 999, Member: "copy-0", Size: 1 << 30,
			Claim:   corev1ac.PersistentVolumeClaim("data-copy-0", "shop"),
			Account: corev1ac.ServiceAccount("copy-backup", "shop"),
			Volume:  &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-copy-0", Annotations: map[string]string{v1alpha1.AnnotationRestoredBy: "c-uid"}}},
		},
		backup: &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-1"}},
		report: &restoreReport{object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "copy-restore"}}, step: v1alpha1.RestoreStepCopying, progress: "45%"},
		pods:   []corev1.Pod{{}},
	}
	s.backup.Spec.ClusterRef = v1alpha1.ClusterReference{Kind: "PostgresCluster", Name: "orders"}
	s.backup.Status = v1alpha1.BackupStatus{CompletionTime: &began, Location: c.Status.Restore.Location, Result: backupstest.Result}
	s.job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "copy-restore", UID: "j", CreationTimestamp: metav1.NewTime(backupstest.Noon.Add(-time.Second))}}
	s.job.Annotations = map[string]string{v1alpha1.AnnotationGiven: s.hashInput()}
	return s
}

// blank is the same before anything was done.
func blank(s *restoreObservation) {
	s.cluster.CommonStatus().Restore, s.how.Volume, s.job, s.report, s.pods = nil, nil, nil, nil, nil
}

var noonish = &v1alpha1.RestoreTarget{Time: "2026-03-01T12:00:00Z"}

var restored = &v1alpha1.RestoreResult{Backup: "orders-1", ClusterUID: "o-uid", Manifest: "m", Checksum: "sha256:0", Version: "17.4", SystemIdentifier: "7", EndPosition: "2:0/300100"}

// restoreActs is what a plan does, in a few words.
func restoreActs(p restorePlan) string {
	var did []string
	for what, is := range map[string]bool{"holds": p.holds, "record": p.mustRecord} {
		if is {
			did = append(did, what)
		}
	}
	name := func(o runtime.ApplyConfiguration) string {
		data, _ := json.Marshal(o)
		var obj metav1.PartialObjectMetadata
		_ = json.Unmarshal(data, &obj)
		return obj.Kind + "/" + obj.Name
	}
	if p.create != nil {
		did = append(did, "+"+name(p.create))
	}
	for _, o := range p.remove {
		did = append(did, "-"+o.GetName())
	}
	if len(p.objects) > 0 {
		did = append(did, name(p.objects[len(p.objects)-1]))
	}
	slices.Sort(did)
	return strings.Join(did, " ")
}

func TestPlanRestore(t *testing.T) {
	const volume = "PersistentVolumeClaim/data-copy-0"
	const access = "RoleBinding/copy-restore-report"
	claimOf := func(uid, system string) *corev1.PersistentVolumeClaim {
		v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-copy-0", Annotations: map[string]string{}}}
		for key, value := range map[string]string{v1alpha1.AnnotationRestoredBy: uid, v1alpha1.AnnotationSystemIdentifier: system} {
			if value != "" {
				v.Annotations[key] = value
			}
		}
		return v
	}
	// of a prefix in a store, or else of a Backup, something came back.
	of := func(prefix, manifest, backup string) func(*restoreObservation) {
		return func(s *restoreObservation) {
			s.report.result = &v1alpha1.RestoreResult{Backup: backup, Manifest: manifest}
			if st := s.cluster.CommonStatus().Restore; prefix != "" {
				st.Manifest, st.Checksum, st.Location.Prefix = "", "", prefix
			}
		}
	}
	cases := []struct {
		name   string
		change func(*restoreObservation)
		does   string
		fact   string // type/reason of the first; empty for none
		says   string
	}{
		{"a cluster without it is left to its engine", func(s *restoreObservation) { blank(s); s.cluster.Common().Restore = nil }, "", "", ""},
		{"one that is done, too", func(s *restoreObservation) {
			s.cluster.CommonStatus().Restore.CompletionTime, s.job = &metav1.Time{Time: backupstest.Noon}, nil
		}, "", "", ""},
		{"its Job goes", func(s *restoreObservation) {
			s.cluster.CommonStatus().Restore.CompletionTime = &metav1.Time{Time: backupstest.Noon}
		}, "-copy-restore", "", ""},
		{"what is declared later changes nothing", func(s *restoreObservation) {
			s.cluster.CommonStatus().Restore.CompletionTime, s.job = &metav1.Time{Time: backupstest.Noon}, nil
			s.cluster.Common().Restore.Backup = "tuesday"
		}, "", "Stalled/RestoreRefused", "set it back"},
		{"a target in the future is waited for", func(s *restoreObservation) {
			blank(s)
			s.cluster.Common().Restore.Target = &v1alpha1.RestoreTarget{Time: backupstest.Noon.Add(time.Hour).Format(time.RFC3339)}
		}, "holds", "Stalled/RestoreRefused", "is in the future: name a time that has passed"},
		{"one that has passed is judged by its backup", func(s *restoreObservation) {
			blank(s)
			s.cluster.Common().Restore.Target = &v1alpha1.RestoreTarget{Time: backupstest.Noon.Format(time.RFC3339)}
		}, "holds", "Stalled/RestoreRefused", "lies on volume orders-backups"},
		{"a cluster that lives is not restored over", func(s *restoreObservation) { blank(s); s.how.Living = true }, "", "Stalled/RestoreRefused", "remove it"},
		{"nor one on a volume of its own", func(s *restoreObservation) { blank(s); s.how.Living, s.how.Volume = true, claimOf("", "7") }, "", "Stalled/RestoreRefused", "remove it"},
		{"a record that was lost is made again", func(s *restoreObservation) { blank(s); s.how.Living, s.how.Volume = true, claimOf("c-uid", "7") }, "record", "", ""},
		{"so is one that says less than it did", func(s *restoreObservation) { s.how.Living, s.how.Volume = true, claimOf("c-uid", "7") }, "record", "", ""},
		{"nothing begins in a suspended cluster", func(s *restoreObservation) { blank(s); s.cluster.Common().Suspend = true }, "holds", "Reconciling/Restoring", "suspend"},
		{"nor goes on", func(s *restoreObservation) { s.how.Volume, s.job, s.cluster.Common().Suspend = nil, nil, true }, "holds", "Reconciling/Restoring", "suspend"},
		{"a volume of an earlier cluster is not touched", func(s *restoreObservation) { blank(s); s.how.Volume = claimOf("", "7") }, "holds", "Stalled/RestoreRefused", "remove spec.restore to go on"},
		{"nor one that was restored once", func(s *restoreObservation) { blank(s); s.how.Volume = claimOf("b-uid", "7") }, "holds", "Stalled/RestoreRefused", "remove spec.restore to go on"},
		{"nor one without a word", func(s *restoreObservation) { blank(s); s.how.Volume = claimOf("", "") }, "holds", "Stalled/RestoreRefused", "remove spec.restore to go on"},
		{"nor one that came in the place of ours", func(s *restoreObservation) { s.how.Volume = claimOf("", "") }, "holds", "Stalled/RestoreRefused", "declare another cluster"},
		{"one that is being deleted is waited for", func(s *restoreObservation) { blank(s); s.how.Volume, s.how.Leaving = claimOf("", "7"), "data-copy-0" }, "holds", "Reconciling/Restoring", "volume data-copy-0 of an earlier cluster"},
		{"a half copy is to be deleted", func(s *restoreObservation) { blank(s); s.how.Volume = claimOf("b-uid", "") }, "holds", "Stalled/RestoreRefused", "look at what it holds first"},
		{"volumes of other members are in the way", func(s *restoreObservation) { blank(s); s.how.Others = []string{"data-copy-1"} }, "holds", "Stalled/RestoreRefused", "delete data-copy-1"},
		{"what is read is put on record first", blank, "holds record", "Reconciling/Restoring", ""},
		{"and again, where the record was lost", func(s *restoreObservation) { blank(s); s.how.Volume = claimOf("c-uid", "") }, "holds record", "Reconciling/Restoring", ""},
		{"a Backup that is not there", func(s *restoreObservation) { blank(s); s.backup = nil }, "holds", "Stalled/BackupMissing", "orders-1"},
		{"of another kind", func(s *restoreObservation) { blank(s); s.backup.Spec.ClusterRef.Kind = "EtcdCluster" }, "holds", "Stalled/RestoreRefused", "EtcdCluster"},
		{"that is going", func(s *restoreObservation) {
			blank(s)
			s.backup.DeletionTimestamp = &metav1.Time{Time: backupstest.Noon}
		}, "holds", "Stalled/BackupMissing", "deleted"},
		{"that failed", func(s *restoreObservation) {
			blank(s)
			s.backup.Status.Result, s.backup.Status.Error = nil, "no bucket"
		}, "holds", "Stalled/RestoreRefused", "no bucket"},
		{"that is not done", func(s *restoreObservation) { blank(s); s.backup.Status.CompletionTime = nil }, "holds", "Reconciling/Restoring", "not complete yet"},
		{"on a volume, to a moment", func(s *restoreObservation) { blank(s); s.cluster.Common().Restore.Target = noonish }, "holds", "Stalled/RestoreRefused", "no WAL is archived"},
		{"in a store, to a moment", func(s *restoreObservation) {
			blank(s)
			s.cluster.Common().Restore.Target, s.backup.Status.Location = noonish, &v1alpha1.BackupLocation{URL: "s3://acme"}
		}, "holds record", "Reconciling/Restoring", ""},
		{"another moment is another wish", func(s *restoreObservation) { s.cluster.Common().Restore.Target = noonish }, "-copy-restore -copy-restore holds", "Reconciling/Restoring", "another backup"},
		{"what was recovered to another moment is none", func(s *restoreObservation) {
			s.cluster.Common().Restore.Target, s.cluster.CommonStatus().Restore.Target = noonish, noonish
			s.report.result = restored
		}, volume + " holds", "Stalled/RestoreFailed", "recovered to the end of the backup"},
		{"nor is what was not", func(s *restoreObservation) {
			s.report.result = restored.DeepCopy()
			s.report.result.Target = noonish
		}, volume + " holds", "Stalled/RestoreFailed", "recovered to the time"},
		{"whose volume is gone", func(s *restoreObservation) { blank(s); s.volume = false }, "holds", "Stalled/BackupMissing", "orders-backups"},
		{"another backup waits for what is left of the last try", func(s *restoreObservation) { s.cluster.Common().Restore.Backup = "tuesday" }, "-copy-restore -copy-restore holds", "Reconciling/Restoring", "another backup"},
		{"and is put on record", func(s *restoreObservation) { s.cluster.Common().Restore.Backup, s.job, s.report = "tuesday", nil, nil }, "holds record", "Reconciling/Restoring", ""},
		{"a volume of an earlier cluster does not go", func(s *restoreObservation) {
			s.cluster.Common().Restore.Backup, s.job, s.report, s.how.Volume = "tuesday", nil, nil, claimOf("", "7")
		}, "holds", "Stalled/RestoreRefused", "data-copy-0"},
		{"then the volume is created", func(s *restoreObservation) { s.how.Volume, s.job, s.report = nil, nil, nil }, "+" + volume + " " + access + " holds", "Reconciling/Restoring", "data-copy-0"},
		{"also where spec.restore was removed", func(s *restoreObservation) {
			s.how.Volume, s.job, s.report, s.cluster.Common().Restore = nil, nil, nil, nil
		}, "+" + volume + " " + access + " holds", "Reconciling/Restoring", ""},
		{"unless the spec keeps it from being made", func(s *restoreObservation) {
			s.how.Volume, s.job, s.report = nil, nil, nil
			s.how.Faults = []condition.Fact{condition.Stalled(v1alpha1.ReasonStorageClassMissing, "no class")}
		}, "holds", "Stalled/StorageClassMissing", ""},
		{"where it went, what was said of it goes first", func(s *restoreObservation) { s.how.Volume, s.report.result = nil, restored }, "-copy-restore -copy-restore " + access + " holds", "Reconciling/Restoring", "gone"},
		{"where only its labels were taken, it gets them again", func(s *restoreObservation) { s.how.Volume, s.hidden = nil, true }, "+" + volume + " " + access + " holds", "Reconciling/Restoring", ""},
		{"while it goes, nothing counts", func(s *restoreObservation) {
			s.how.Volume.DeletionTimestamp, s.report.result = &metav1.Time{Time: backupstest.Noon}, restored
		}, access + " holds", "Stalled/RestoreFailed", "deleted"},
		{"then what the pod fills is created", func(s *restoreObservation) { s.job, s.report = nil, nil }, "+ConfigMap/copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"no pod waits for keys that are not there", func(s *restoreObservation) { s.job, s.missing = nil, "keys" }, volume + " holds", "Stalled/SecretMissing", "keys"},
		{"then the Job", func(s *restoreObservation) { s.job = nil }, "+Job/copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"a Job runs", func(*restoreObservation) {}, volume + " holds", "Reconciling/Restoring", "copied and checked, 45%"},
		{"its pod has not said anything", func(s *restoreObservation) { s.report.step = "" }, volume + " holds", "Reconciling/Restoring", "starting"},
		{"it is tried again", func(s *restoreObservation) { s.report.err = "timeout" }, volume + " holds", "Reconciling/Restoring", "trying again: timeout"},
		{"it gets no pod", func(s *restoreObservation) { s.pods, s.now = nil, backupstest.Noon.Add(time.Hour) }, volume + " holds", "Stalled/Restoring", "gets no pod"},
		{"it is being stopped", func(s *restoreObservation) { s.job.DeletionTimestamp = &metav1.Time{Time: backupstest.Noon} }, volume + " holds", "Reconciling/Restoring", "another try"},
		{"it failed, and stays for its log", func(s *restoreObservation) { backupstest.EndJob(s.job, batchv1.JobFailed); s.report.err = "version 18" }, volume + " holds", "Stalled/RestoreFailed", "nothing was restored: version 18"},
		{"without a word of its pod", func(s *restoreObservation) { backupstest.EndJob(s.job, batchv1.JobFailed) }, volume + " holds", "Stalled/RestoreFailed", "too many"},
		{"for want of memory, it names the field", func(s *restoreObservation) {
			backupstest.EndJob(s.job, batchv1.JobFailed)
			s.report.err = "an earlier try's"
			yes := true
			s.pods[0].Name, s.pods[0].OwnerReferences = "copy-restore-x", []metav1.OwnerReference{{UID: "j", Controller: &yes}}
			s.pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}}}
		}, volume + " holds", "Stalled/RestoreFailed", "nothing was restored: spec.resources: pod copy-restore-x"},
		{"it is tried again with another spec", func(s *restoreObservation) { backupstest.EndJob(s.job, batchv1.JobFailed); s.cluster.SetGeneration(2) }, "-copy-restore -copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"and once the volume has grown", func(s *restoreObservation) {
			size := func(of string) corev1.ResourceList {
				return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(of)}
			}
			v := s.how.Volume
			v.Status.Phase, v.Spec.Resources.Requests, v.Status.Capacity = corev1.ClaimBound, size("2Gi"), size("1Gi")
			s.job.Annotations[v1alpha1.AnnotationGiven] = s.hashInput()
			v.Status.Capacity = size("2Gi")
			backupstest.EndJob(s.job, batchv1.JobFailed)
		}, "-copy-restore -copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"with other keys", func(s *restoreObservation) { backupstest.EndJob(s.job, batchv1.JobFailed); s.keys = "12" }, "-copy-restore -copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"and when a person asks", func(s *restoreObservation) {
			backupstest.EndJob(s.job, batchv1.JobFailed)
			s.cluster.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": "now"})
		}, "-copy-restore -copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"it has ended, and its report is on its way", func(s *restoreObservation) {
			backupstest.EndJob(s.job, batchv1.JobComplete)
			s.job.Status.CompletionTime = &metav1.Time{Time: backupstest.Noon.Add(-time.Second)}
		}, volume + " holds", "Reconciling/Restoring", "ended"},
		{"a report that was lost is made again", func(s *restoreObservation) {
			backupstest.EndJob(s.job, batchv1.JobComplete)
			s.job.Status.CompletionTime = &metav1.Time{Time: backupstest.Noon.Add(-time.Hour)}
		}, "-copy-restore -copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"a result is put on record", func(s *restoreObservation) { s.report.result = restored }, "holds record", "Reconciling/Restoring", "is restored"},
		{"one of another manifest is none", of("", "m2", "orders-1"), volume + " holds", "Stalled/RestoreFailed", "holds backup orders-1, of the manifest m2"},
		{"even without its Job", func(s *restoreObservation) { of("", "m2", "orders-1")(s); s.job = nil }, volume + " holds", "Stalled/RestoreFailed", "delete the volume"},
		{"of a store it is what lies below the prefix", of("shop/orders/u/", "shop/orders/u/m", "orders-1"), "holds record", "Reconciling/Restoring", "is restored"},
		{"and nothing else", of("shop/orders/u/", "shop/orders/v/m", "orders-1"), volume + " holds", "Stalled/RestoreFailed", "not what spec.restore names"},
		{"with the name that is asked for", of("shop/orders/u/", "shop/orders/u/m", "orders-2"), volume + " holds", "Stalled/RestoreFailed", "orders-2"},
		{"a mistake is looked at again when a person asks", func(s *restoreObservation) {
			of("", "m2", "orders-1")(s)
			s.cluster.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": "now"})
		}, "-copy-restore -copy-restore " + volume + " holds", "Reconciling/Restoring", ""},
		{"whatever became of the Job", func(s *restoreObservation) { s.report.result, s.job = restored, nil }, "holds record", "Reconciling/Restoring", "is restored"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := fetching()
			c.change(&s)
			p := planRestore(s)
			fact, says := "", ""
			if len(p.facts) > 0 {
				fact, says = p.facts[0].Type+"/"+p.facts[0].Reason, p.facts[0].Message
			}
			if diff := cmp.Diff([]string{c.does, c.fact}, []string{restoreActs(p), fact}); diff != "" {
				t.Errorf("does and says (-want +got):\n%s", diff)
			}
			if !strings.Contains(says, c.says) {
				t.Errorf("it says %q, want %q", says, c.says)
			}
			if p.mustRecord && (p.create != nil || len(p.objects)+len(p.remove) > 0) {
				t.Error("something is done before it is on record")
			}
			if before, after := s.cluster.CommonStatus().Restore, p.status; !p.mustRecord && before.Done() != after.Done() {
				t.Error("the record changes, and may go over a newer one")
			}
		})
	}
}

// What is recorded is all that every try needs.
func TestRestoreRecord(t *testing.T) {
	source := v1alpha1.RestoreSource{Namespace: "old", Cluster: "orders", ClusterUID: "u", Backup: "orders-2"}
	source.BackupDestination = v1alpha1.BackupDestination{URL: "s3://acme/postgres/", Endpoint: "https://store", Region: "r", PathStyle: true, CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}
	began := metav1.NewTime(backupstest.Noon)
	task := agentapi.RestoreTask{Namespace: "shop", Name: "copy", UID: "c-uid", Kind: "PostgresCluster", Member: "copy-0", VolumeSize: 1 << 30}
	inStore := agentapi.BackupStore{URL: "s3://acme/postgres", Endpoint: "https://store", Region: "r", PathStyle: true}
	cases := []struct {
		name   string
		change func(*restoreObservation)
		want   *v1alpha1.RestoreStatus
		task   func(*agentapi.RestoreTask)
	}{
		{"a Backup", func(*restoreObservation) {}, &v1alpha1.RestoreStatus{
			Backup: "orders-1", Manifest: "m", StartTime: &began, Location: fetching().backup.Status.Location,
		}, func(t *agentapi.RestoreTask) {
			t.Store.URL, t.Prefix, t.Manifest = "file:///backups", "shop/orders/", "m"
		}},
		{"one of several in a store", func(s *restoreObservation) { s.cluster.Common().Restore = &v1alpha1.ClusterRestore{Source: &source} }, &v1alpha1.RestoreStatus{
			Backup: "orders-2", StartTime: &began,
			Location: &v1alpha1.BackupLocation{URL: "s3://acme/postgres", Endpoint: "https://store", Region: "r", PathStyle: true, CredentialsSecret: "keys", Prefix: "old/orders/u/"},
		}, func(t *agentapi.RestoreTask) { t.Store, t.Prefix, t.Backup = inStore, "old/orders/u/", "orders-2" }},
		{"the newest of the same name in a store", func(s *restoreObservation) {
			s.cluster.Common().Restore = &v1alpha1.ClusterRestore{Source: &v1alpha1.RestoreSource{BackupDestination: v1alpha1.BackupDestination{URL: "gs://acme"}}}
			s.how.CompleteTask = func(t *agentapi.RestoreTask, drill bool) {
				t.PeerURL, t.Token = fmt.Sprintf("drill %t", drill), "engine's"
			}
		}, &v1alpha1.RestoreStatus{
			StartTime: &began, Location: &v1alpha1.BackupLocation{URL: "gs://acme", Prefix: "shop/copy/"},
		}, func(t *agentapi.RestoreTask) {
			t.Store.URL, t.Prefix, t.PeerURL, t.Token = "gs://acme", "shop/copy/", "drill false", "engine's"
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := fetching()
			blank(&s)
			c.change(&s)
			p := planRestore(s)
			if diff := cmp.Diff(c.want, p.status); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			s.cluster.CommonStatus().Restore = p.status
			if !s.matchesSpec() {
				t.Error("it is not what is declared")
			}
			if from := s.cluster.Common().Restore.Source; from != nil {
				from.Endpoint = "https://moved"
				if s.matchesSpec() {
					t.Error("another endpoint is not read")
				}
				if p.status.CompletionTime = &began; !s.matchesSpec() {
					t.Error("it is done, and where the store is now matters")
				}
				if from.Cluster = "other"; s.matchesSpec() {
					t.Error("another cluster's is the same")
				}
			}
			want := task
			c.task(&want)
			if diff := cmp.Diff(want, s.restoreTask()); diff != "" {
				t.Errorf("task (-want +got):\n%s", diff)
			}
		})
	}
}

// A result counts for the cluster that it is of, and only whole.
func TestRestoreReport(t *testing.T) {
	text, err := json.Marshal(restored)
	if err != nil {
		t.Fatal(err)
	}
	of := func(uid types.UID, result string) *restoreReport {
		return reportOf(&corev1.ConfigMap{Data: map[string]string{agentapi.RestoreKeyClusterUID: string(uid), agentapi.RestoreKeyResult: result, agentapi.RestoreKeyStep: "Done"}}, "c-uid")
	}
	if r := of("c-uid", string(text)); !cmp.Equal(r.result, restored) || r.step != "Done" {
		t.Errorf("%+v", r)
	}
	if r := of("b-uid", string(text)); r.result != nil || r.step != "" {
		t.Errorf("an earlier cluster's: %+v", r)
	}
	if r := of("c-uid", "{"); r.result != nil || r.err == "" {
		t.Errorf("half a result: %+v", r)
	}
}

// The volume is created without an owner, and applied with one.
func TestRestoreClaimWithoutOwner(t *testing.T) {
	s := fetching()
	s.how.Claim.WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).WithLabels(map[string]string{v1alpha1.LabelMember: "0"})
	bare := withoutOwner(s.how.Claim).(*corev1ac.PersistentVolumeClaimApplyConfiguration)
	if bare.OwnerReferences != nil || bare.Labels[v1alpha1.LabelMember] != "0" || len(s.how.Claim.OwnerReferences) != 1 {
		t.Errorf("%+v of %+v", bare, s.how.Claim)
	}
}

// A Backup is read from the moment that a user declares so until the data is
// in its place.
func TestRestoreReads(t *testing.T) {
	cases := []struct {
		name   string
		change func(*restoreObservation)
		want   string
	}{
		{"on record", func(*restoreObservation) {}, "orders-1"},
		{"declared", func(s *restoreObservation) { blank(s) }, "orders-1"},
		{"declared for a cluster that lives", func(s *restoreObservation) { blank(s); s.cluster.CommonStatus().SystemIdentifier = "7" }, ""},
		{"done", func(s *restoreObservation) {
			s.cluster.CommonStatus().Restore.CompletionTime = &metav1.Time{Time: backupstest.Noon}
		}, ""},
		{"abandoned", func(s *restoreObservation) { s.cluster.SetDeletionTimestamp(&metav1.Time{Time: backupstest.Noon}) }, ""},
		{"of that name in a store", func(s *restoreObservation) { s.cluster.CommonStatus().Restore.Manifest = "" }, ""},
		{"none", func(s *restoreObservation) { blank(s); s.cluster.Common().Restore = nil }, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := fetching()
			c.change(&s)
			if got := backups.FindBackupRead(s.cluster); got != c.want {
				t.Errorf("%q is read, want %q", got, c.want)
			}
		})
	}
}
