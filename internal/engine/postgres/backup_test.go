package postgres

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine"
)

func TestPlanCopy(t *testing.T) {
	at := func(n int, timeline int64, position uint64) func(w *world) {
		return func(w *world) {
			w.status(n).Engine, w.status(n).Position = postgresapi.ReplicationStatus{Timeline: timeline}, position
		}
	}
	cases := []struct {
		name     string
		replicas int
		change   func(w *world)
		sources  string
		atLeast  string
	}{
		{"replicas first", 3, at(0, 1, 0x1_0000_0100), "orders-2 orders-1 orders-0", "1:1/100"},
		{"what a replica has from a newer primary", 3, at(1, 2, 0x100), "orders-2 orders-1 orders-0", "2:0/100"},
		{"replicas that stream", 3, func(w *world) { w.status(2).State = agentapi.StateCatchingUp }, "orders-1 orders-0", "1:0/3000060"},
		{"replicas that serve", 3, func(w *world) { w.status(2).Serving = false }, "orders-1 orders-0", "1:0/3000060"},
		{"replicas that stay", 3, func(w *world) { w.o.Pods[2].DeletionTimestamp = &metav1.Time{Time: now} }, "orders-1 orders-0", "1:0/3000060"},
		{"not what a member has that cannot be copied", 2, func(w *world) {
			w.status(1).State, w.status(1).Engine = agentapi.StateDisconnected, postgresapi.ReplicationStatus{Timeline: 7}
		}, "orders-0", "1:0/3000060"},
		{"the primary, where it is alone", 1, func(*world) {}, "orders-0", "1:0/3000060"},
		{"no position, where none is known", 1, at(0, 0, 0), "orders-0", ""},
		{"no member", 1, func(w *world) { w.status(0).State, w.status(0).Serving = agentapi.StateFailed, false }, "", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, tc.replicas)
			for n := range tc.replicas {
				at(n, 1, 0x3000060)(w)
			}
			tc.change(w)
			got := (&Engine{}).PlanCopy(w.c, w.o)
			var sources []string
			for _, source := range got.Sources {
				sources = append(sources, source.Name)
			}
			if strings.Join(sources, " ") != tc.sources || got.AtLeast != tc.atLeast || (got.Waits == "") != (tc.sources != "") {
				t.Errorf("%+v", got)
			}
		})
	}
	w := settled(t, 2)
	w.status(0).DataSize, w.c.Status.SystemIdentifier = 42, "7"
	at(0, 1, 0x60)(w)
	at(1, 1, 0x50)(w)
	want := engine.CopyPlan{
		Program: "postgres", Image: "docker.io/library/postgres:17", Secret: "orders-tls", Expected: 42, AtLeast: "1:0/60", SystemIdentifier: "7",
		Sources: []engine.Source{{Name: "orders-1", Address: "orders-1.orders-members.shop.svc:5432"}, {Name: "orders-0", Address: "orders-0.orders-members.shop.svc:5432"}},
	}
	if diff := cmp.Diff(want, (&Engine{}).PlanCopy(w.c, w.o)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// claim of a volume for backups that is there.
func claim(size, class string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-backups", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
}

// The volume for backups never shrinks and never changes its class, and stays
// whatever becomes of spec.backup.
func TestBackupVolume(t *testing.T) {
	own := func(size, class string) *v1alpha1.ClusterBackup {
		b := &v1alpha1.ClusterBackup{Volume: &v1alpha1.BackupVolume{StorageClass: class}}
		if size != "" {
			b.Volume.Size = new(resource.MustParse(size))
		}
		return b
	}
	away := &v1alpha1.ClusterBackup{Destination: &v1alpha1.BackupDestination{URL: "s3://b"}}
	cases := []struct {
		name     string
		declared *v1alpha1.ClusterBackup
		live     *corev1.PersistentVolumeClaim
		want     string // whether the first backup makes it, size and class; nothing for no volume
		account  bool
	}{
		{"no backups", nil, nil, "", false},
		{"by default", &v1alpha1.ClusterBackup{}, nil, "later 2Gi ", true},
		{"as declared", own("5Gi", "slow"), nil, "later 5Gi slow", true},
		{"a destination", away, nil, "", true},
		{"turned off", &v1alpha1.ClusterBackup{Enabled: new(false)}, nil, "", false},
		{"it grows", own("5Gi", ""), claim("2Gi", "standard", corev1.ClaimBound), "5Gi standard", true},
		{"not before it is bound", own("5Gi", ""), claim("2Gi", "standard", corev1.ClaimPending), "2Gi standard", true},
		{"not where its class does not let it", own("5Gi", ""), claim("2Gi", "fixed", corev1.ClaimBound), "2Gi fixed", true},
		{"it does not shrink", own("1Gi", "standard"), claim("2Gi", "standard", corev1.ClaimBound), "2Gi standard", true},
		{"it keeps its class", own("", "fixed"), claim("2Gi", "standard", corev1.ClaimBound), "2Gi standard", true},
		{"it stays when backups go elsewhere", away, claim("9Gi", "standard", corev1.ClaimBound), "9Gi standard", true},
		{"it stays when backups are off", nil, claim("1Gi", "standard", corev1.ClaimBound), "1Gi standard", false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 1)
			w.c.Spec.Backup, w.o.BackupVolume = tc.declared, tc.live
			got, account := "", false
			p := w.plan()
			all := p.Objects
			if p.BackupVolume != nil {
				got, all = "later ", append(all, p.BackupVolume)
			}
			for _, obj := range all {
				switch obj := obj.(type) {
				case *corev1ac.PersistentVolumeClaimApplyConfiguration:
					if *obj.Name == "orders-backups" {
						size, class := (*obj.Spec.Resources.Requests)[corev1.ResourceStorage], ""
						if obj.Spec.StorageClassName != nil {
							class = *obj.Spec.StorageClassName
						}
						got += size.String() + " " + class
					}
				case *corev1ac.ServiceAccountApplyConfiguration:
					account = account || *obj.Name == "orders-backup"
				}
			}
			if got != tc.want || account != tc.account {
				t.Errorf("volume %q, account %v", got, account)
			}
		})
	}
}

// A volume for backups is made for the data as it grew by itself, and for none
// that no member runs on; once made it follows the spec alone.
func TestBackupVolumeOfGrownData(t *testing.T) {
	w := settled(t, 1)
	w.c.Spec.Backup = &v1alpha1.ClusterBackup{}
	grown := func(n int, size string) {
		w.o.Volumes[n].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	w.volume(1, false)
	grown(0, "10Gi")
	grown(1, "30Gi")
	size := func(obj any) string {
		has := (*obj.(*corev1ac.PersistentVolumeClaimApplyConfiguration).Spec.Resources.Requests)[corev1.ResourceStorage]
		return has.String()
	}
	if got := size(w.plan().BackupVolume); got != "20Gi" {
		t.Errorf("it is made with %s", got)
	}
	w.o.BackupVolume = claim("5Gi", "standard", corev1.ClaimBound)
	for _, obj := range w.plan().Objects {
		if v, is := obj.(*corev1ac.PersistentVolumeClaimApplyConfiguration); is && *v.Name == "orders-backups" && size(v) != "5Gi" {
			t.Errorf("it grows to %s", size(v))
		}
	}
}

// A suspended cluster keeps the promise of its deletion policy for backups, too.
func TestPolicyOfBackupVolume(t *testing.T) {
	w := settled(t, 1)
	w.c.Spec.Suspend, w.o.BackupVolume = true, claim("2Gi", "standard", corev1.ClaimBound)
	w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	for _, v := range w.o.Volumes {
		v.OwnerReferences = []metav1.OwnerReference{{UID: w.c.UID}}
	}
	if step := w.plan().Step; step == nil || step.Target != "orders-backups" {
		t.Errorf("%+v", step)
	}
}
