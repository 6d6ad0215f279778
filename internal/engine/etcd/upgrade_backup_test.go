package etcd

import (
	"strings"
	"testing"
	"time"

	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// upgrading is a cluster whose next minor version is asked for, and which is
// backed up.
func upgrading(t *testing.T) *world {
	w := settled(t, 3)
	w.c.Spec.Version = "3.6.12"
	w.c.Spec.Backup = &v1alpha1.ClusterBackup{}
	return w
}

// before is the backup of an upgrade, made so long ago, with a condition.
func (w *world) before(ago time.Duration, conditionType, reason, message string) *v1alpha1.Backup {
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "config-before-3-6", CreationTimestamp: metav1.NewTime(now.Add(-ago)),
		Labels: map[string]string{v1alpha1.LabelClusterUID: "cluster-uid"}}}
	b.Spec.ClusterRef = v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "config"}
	b.Status.Phase = "Copying"
	b.Status.Conditions = []metav1.Condition{{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	w.o.Precaution = b
	return b
}

// templateAsks for an image since the spec did.
func (w *world) templateAsks(image string) {
	w.o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage] = image
}

func ended(b *v1alpha1.Backup, good bool) {
	at := metav1.NewTime(now)
	if b.Status.CompletionTime = &at; good {
		b.Status.Result = &v1alpha1.BackupResult{}
	}
}

// declares is the image that a plan declares, what it says of the upgrade, and
// the backup that it asks for.
func declares(p engine.Plan) (image, says, demand string) {
	for _, obj := range p.Objects {
		if s, ok := obj.(*appsv1ac.StatefulSetApplyConfiguration); ok {
			image = *s.Spec.Template.Spec.Containers[0].Image
		}
	}
	for _, f := range p.Facts {
		if strings.Contains(f.Message, "upgrade") {
			says = f.Type + "/" + f.Reason + " " + f.Message
		}
	}
	if p.Demand != nil {
		demand = p.Demand.Name + " before " + p.Demand.Before
	}
	return image, says, demand
}

func TestUpgradeWaitsForBackup(t *testing.T) {
	const was, is = "quay.io/coreos/etcd:v3.5.26", "quay.io/coreos/etcd:v3.6.12"
	const without = "; or set spec.backup.enabled to false, to upgrade without a backup"
	for _, tc := range []struct {
		name         string
		change       func(w *world)
		image        string
		says, demand string
	}{
		{"it is asked for first", func(*world) {}, was,
			"Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is about to be made", "config-before-3-6 before 3.6.12"},
		{"while it is made the members stay", func(w *world) {
			w.before(0, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying, "").Status.Run = &v1alpha1.BackupRun{Progress: "45%"}
		}, was, "Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is made first: Copying 45%", ""},
		{"while it waits for its turn", func(w *world) { w.before(0, v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForTurn, "") }, was,
			"Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is made first", ""},
		{"what it waits for is said", func(w *world) {
			w.before(0, v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForTurn, "the volume is about to be made")
		}, was, "Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is made first: the volume is about to be made", ""},
		{"once it is good the upgrade begins", func(w *world) { ended(w.before(time.Hour, v1alpha1.ConditionReady, "", ""), true) }, is, "", ""},
		{"it has failed", func(w *world) {
			ended(w.before(0, v1alpha1.ConditionStalled, v1alpha1.ReasonBackupFailed, "the bucket is missing"), false)
		}, was, "Stalled/BackupFailed the upgrade to 3.6.12 waits: backup config-before-3-6 has failed: the bucket is missing; fix that and delete the Backup, and another one is made" + without, ""},
		{"only a person can go on with it", func(w *world) {
			w.before(0, v1alpha1.ConditionStalled, v1alpha1.ReasonSecretMissing, "there is no Secret keys")
		}, was, "Stalled/SecretMissing the upgrade to 3.6.12 waits: backup config-before-3-6 cannot go on: there is no Secret keys" + without, ""},
		{"it is being deleted", func(w *world) {
			at := metav1.NewTime(now)
			w.before(0, v1alpha1.ConditionReady, "", "").DeletionTimestamp = &at
		}, was, "Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is being deleted, and made again then", ""},
		{"it is of an upgrade that was taken back", func(w *world) { ended(w.before(25*time.Hour, v1alpha1.ConditionReady, "", ""), true) }, was,
			"Stalled/BackupOverdue the upgrade to 3.6.12 waits: backup config-before-3-6 is of 2026-02-28T11:00:00Z: delete it, and another one is made" + without, ""},
		{"it waited for its turn for a day", func(w *world) {
			b := w.before(25*time.Hour, v1alpha1.ConditionReady, "", "")
			ended(b, true)
			b.Status.StartTime = &metav1.Time{Time: now.Add(-time.Hour)}
		}, is, "", ""},
		{"the clock of the API server is a day behind", func(w *world) {
			b := w.before(26*time.Hour, v1alpha1.ConditionReady, "", "")
			ended(b, true)
			b.Status.StartTime = &metav1.Time{Time: now}
		}, is, "", ""},
		{"it was begun a day ago", func(w *world) {
			b := w.before(0, v1alpha1.ConditionReady, "", "")
			ended(b, true)
			b.Status.StartTime = &metav1.Time{Time: now.Add(-25 * time.Hour)}
		}, was, "Stalled/BackupOverdue the upgrade to 3.6.12 waits: backup config-before-3-6 is of 2026-02-28T11:00:00Z: delete it, and another one is made" + without, ""},
		{"the StatefulSet is gone", func(w *world) { w.o.StatefulSet = nil }, was,
			"Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is about to be made", "config-before-3-6 before 3.6.12"},
		{"it is gone, and the pods are", func(w *world) {
			w.o.StatefulSet, w.o.Pods = nil, nil
			w.c.Status.Version, w.c.Status.Image = "3.5.26", was
		}, was, "Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is about to be made", "config-before-3-6 before 3.6.12"},
		{"it is gone half-way", func(w *world) {
			w.o.StatefulSet = nil
			w.o.Pods[2].Annotations[v1alpha1.AnnotationImage] = is
		}, is, "", ""},
		{"its data is gone", func(w *world) {
			b := w.before(0, v1alpha1.ConditionStalled, v1alpha1.ReasonDataLost, "the volume is gone")
			ended(b, true)
			b.Status.DataLost = true
		}, was, "Stalled/BackupFailed the upgrade to 3.6.12 waits: backup config-before-3-6 has failed: the volume is gone; fix that and delete the Backup, and another one is made" + without, ""},
		{"that of a lost cluster has the name", func(w *world) {
			b := w.before(0, v1alpha1.ConditionReady, "", "")
			b.Status.ClusterUID = "before"
			ended(b, true)
		}, was, "Stalled/NameConflict the upgrade to 3.6.12 waits: there is a Backup config-before-3-6 that is not of this cluster: delete it" + without, ""},
		{"that of another kind has the name", func(w *world) {
			b := w.before(0, v1alpha1.ConditionReady, "", "")
			b.Spec.ClusterRef.Kind = "PostgresCluster"
			ended(b, true)
		}, was, "Stalled/NameConflict the upgrade to 3.6.12 waits: there is a Backup config-before-3-6 that is not of this cluster: delete it" + without, ""},
		{"an upgrade that was begun goes on", func(w *world) { w.statefulSet() }, is, "", ""},
		{"to another patch, too, though its backup is old", func(w *world) {
			w.templateAsks("quay.io/coreos/etcd:v3.6.11")
			ended(w.before(48*time.Hour, v1alpha1.ConditionReady, "", ""), true)
		}, is, "", ""},
		{"from another registry, by a digest", func(w *world) {
			w.templateAsks("mirror.example:5000/coreos/etcd:v3.6.12@sha256:" + strings.Repeat("0", 64))
		}, is, "", ""},
		{"in an image whose tag says nothing, and which a member runs", func(w *world) {
			w.templateAsks("mirror.example:5000/etcd")
			w.o.Member(2).Version = "3.6.11"
		}, is, "", ""},
		{"in an image of one's own whose tag counts something else", func(w *world) {
			w.c.Spec.Version, w.c.Spec.Image = "3.5.26", "acme/etcd-image:3.6.2"
			w.statefulSet()
			for n := range 3 {
				w.pod(n)
			}
			w.say()
			w.c.Spec.Version, w.c.Spec.Image = "3.6.12", "acme/etcd-image:4.0.0"
		}, "acme/etcd-image:3.6.2", "Reconciling/BackingUp the upgrade to 3.6.12 waits: backup config-before-3-6 is about to be made", "config-before-3-6 before 3.6.12"},
		{"it is gone half-way, and another patch is asked for", func(w *world) {
			w.o.StatefulSet = nil
			w.o.Pods[2].Annotations[v1alpha1.AnnotationImage] = "quay.io/coreos/etcd:v3.6.11"
			delete(w.o.Members, w.o.Pods[2].Name) // it starts
		}, is, "", ""},
		{"without backups there is none", func(w *world) { w.c.Spec.Backup = nil }, is, "", ""},
		{"nor where they are turned off", func(w *world) { w.c.Spec.Backup.Enabled = new(false) }, is, "", ""},
		{"a patch takes none", func(w *world) { w.c.Spec.Version = "3.5.30" }, "quay.io/coreos/etcd:v3.5.30", "", ""},
		{"what is refused takes none", func(w *world) { w.c.Spec.Version = "3.7.0" }, was, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := upgrading(t)
			w.say()
			tc.change(w)
			p := w.plan()
			image, says, demand := declares(p)
			if diff := cmp.Diff([]string{tc.image, tc.says, tc.demand}, []string{image, says, demand}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (tc.says != "") != (p.Recheck == precautionRecheck) {
				t.Errorf("looks again in %s", p.Recheck)
			}
			if image == was && p.Step != nil {
				t.Errorf("%s while the members are to stay", p.Step)
			}
		})
	}
}

// Names fit into what a Backup may be called, for the longest name of a cluster.
func TestPrecautionNameFits(t *testing.T) {
	w := upgrading(t)
	w.c.Name, w.c.Spec.Version = strings.Repeat("a", 40), "3.100.12"
	if name := precautionName(w.c, "3.99.0"); len(name) > 54 || strings.Contains(name, ".") {
		t.Errorf("%s has %d characters", name, len(name))
	}
}

func TestVersionOfImage(t *testing.T) {
	for image, want := range map[string]string{
		"quay.io/coreos/etcd:v3.6.12":                      "3.6.12",
		"mirror.example:5000/etcd:3.6.12-acme@sha256:00ff": "3.6.12",
		"mirror.example:5000/etcd":                         "",
		"etcd:3.6":                                         "3.6",
		"etcd:3.6-acme":                                    "",
		"etcd@sha256:00ff":                                 "",
		"":                                                 "",
	} {
		v, known := versionOf(image)
		if got := v.String(); known != (want != "") || known && got != want {
			t.Errorf("%q: %s, %v", image, got, known)
		}
	}
}
