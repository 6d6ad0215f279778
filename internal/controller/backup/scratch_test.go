package backup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// cloning is a backup that is cloned into a volume of its own.
func cloning() observation {
	return begun().with(func(s *observation) {
		s.copying.Scratch = &engine.ScratchVolume{Size: resource.MustParse("10Gi"), Class: "fast"}
		s.copying.Certificate = &engine.CertificateKeys{Secret: "orders-internal", Certificate: "copier.crt", Key: "copier.key"}
		s.copying.Memory, s.copying.OtherNames = 512<<20, []string{"second"}
	})
}

// A Job that needs a volume for the copy gets one for each pod, and the certificate alone of
// a Secret that holds more.
func TestCopyIntoScratch(t *testing.T) {
	spec := job.ConvertTo[batchv1.Job](copyJob(cloning())).Spec.Template.Spec
	find := func(name string) corev1.Volume {
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		if i < 0 {
			t.Fatalf("no volume %s", name)
		}
		return spec.Volumes[i]
	}
	claim := find("scratch").Ephemeral.VolumeClaimTemplate.Spec
	if claim.Resources.Requests.Storage().String() != "10Gi" || *claim.StorageClassName != "fast" || !slices.Equal(claim.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}) {
		t.Errorf("scratch: %+v", claim)
	}
	mounted := map[string]string{}
	for _, source := range find("tls").Projected.Sources {
		for _, item := range source.Secret.Items {
			mounted[item.Path] = source.Secret.Name + "/" + item.Key
		}
	}
	want := map[string]string{"ca.crt": "orders-tls/ca.crt", "tls.crt": "orders-internal/copier.crt", "tls.key": "orders-internal/copier.key"}
	if diff := cmp.Diff(want, mounted); diff != "" {
		t.Errorf("certificate (-want +got):\n%s", diff)
	}
	if task := spec.Containers[0].Env[0].Value; !strings.Contains(task, `"otherNames":["second"]`) {
		t.Errorf("task %s", task)
	}
	if r := spec.Containers[0].Resources; r.Requests.Memory().String() != "512Mi" || r.Limits.Memory().String() != "1Gi" {
		t.Errorf("memory: %v", r)
	}
	if r := spec.InitContainers[0].Resources; r.Requests.Memory().String() != "256Mi" {
		t.Errorf("memory of the installer: %v", r)
	}
}

// A finished pod holds its scratch volume. It goes when another try has begun, or when how
// the backup ended is recorded: the reason is read of it before.
func TestScratchIsFreed(t *testing.T) {
	s := cloning()
	s.job.Spec = job.ConvertTo[batchv1.Job](copyJob(s)).Spec
	pod := func(name string, age time.Duration, phase corev1.PodPhase) corev1.Pod {
		p := podOf("orders-1-copy", corev1.PodStatus{Phase: phase})
		p.Name, p.CreationTimestamp, p.Labels = name, ago(age), map[string]string{v1alpha1.LabelBackup: "orders-1"}
		return p
	}
	first, second := pod("first", time.Minute, corev1.PodFailed), pod("second", time.Second, corev1.PodRunning)
	stranger := pod("stranger", time.Hour, corev1.PodFailed)
	stranger.OwnerReferences[0].UID = "another"
	cases := []struct {
		name   string
		change func(*observation)
		want   []string
	}{
		{"another try runs", func(s *observation) { s.pods = []corev1.Pod{first, second, stranger} }, []string{"first"}},
		{"the last one has failed", func(s *observation) { s.pods = []corev1.Pod{first} }, nil},
		{"that is recorded", func(s *observation) {
			done := metav1.NewTime(backupstest.Noon)
			s.pods, s.backup.Status.CompletionTime = []corev1.Pod{first, stranger}, &done
		}, []string{"first"}},
		{"a Job without such a volume", func(s *observation) {
			s.pods, s.job.Spec = []corev1.Pod{first, second}, batchv1.JobSpec{}
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := s
			o.backup, o.job = s.backup.DeepCopy(), s.job.DeepCopy()
			c.change(&o)
			var got []string
			for _, p := range planBackup(o).spent {
				got = append(got, p.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Where a pod is to have a volume of its own, it has no node before that is made. Only one
// that waits for longer is in want of something.
func TestScratchTakesAWhile(t *testing.T) {
	for _, c := range []struct {
		age     time.Duration
		node    string
		owner   types.UID
		stalled bool
	}{
		{time.Second, "", "j", false},
		{time.Minute, "", "j", true},
		{time.Second, "node-1", "j", true},
		{time.Second, "", "another", false}, // no pod of this Job: nothing is wrong with it
	} {
		s := cloning()
		s.job.Spec = job.ConvertTo[batchv1.Job](copyJob(s)).Spec
		pod := podOf("orders-1-copy", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "there is no claim",
		}}})
		pod.CreationTimestamp, pod.Spec.NodeName, pod.OwnerReferences[0].UID = ago(c.age), c.node, c.owner
		s.pods, s.backup.Status.Run = []corev1.Pod{pod}, nil
		p := planBackup(s)
		if got := p.fact.Type == v1alpha1.ConditionStalled; got != c.stalled || p.recheck == 0 {
			t.Errorf("%+v: %+v, next look in %s", c, p.fact, p.recheck)
		}
	}
}
