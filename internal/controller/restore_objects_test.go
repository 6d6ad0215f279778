package controller

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/job"
)

// objectOf what is applied, as the API server would read it.
func objectOf[T any](t *testing.T, ac any) *T {
	t.Helper()
	data, err := json.Marshal(ac)
	if err != nil {
		t.Fatal(err)
	}
	obj := new(T)
	if err := json.Unmarshal(data, obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// What a restore writes is the members', and what it reads stays as it is.
func TestRestoreJob(t *testing.T) {
	pod := objectOf[batchv1.Job](t, restoreJob(fetching())).Spec.Template.Spec
	if sc := pod.SecurityContext; *sc.RunAsUser != 999 || *sc.FSGroup != 999 || !slices.Equal(sc.SupplementalGroups, []int64{job.BackupUser}) {
		t.Errorf("it runs as %+v", sc)
	}
	mounts := map[string]corev1.VolumeMount{}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounts[m.Name] = m
	}
	if m := mounts["data"]; m.MountPath != agentapi.DataDir || m.ReadOnly {
		t.Errorf("the volume is mounted as %+v", m)
	}
	if m := mounts["backups"]; m.MountPath != agentapi.BackupsDir || !m.ReadOnly {
		t.Errorf("the backup is mounted as %+v", m)
	}
	if args := pod.Containers[0].Args; !slices.Equal(args, []string{"job", "restore", "postgres"}) {
		t.Errorf("%v", args)
	}
	s := fetching()
	s.cluster.CommonStatus().Restore.Location.ClaimName = ""
	pod = objectOf[batchv1.Job](t, restoreJob(s)).Spec.Template.Spec
	if len(pod.SecurityContext.SupplementalGroups) > 0 || slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "backups" }) {
		t.Errorf("without a volume of backups: %+v", pod.SecurityContext)
	}
}

// The database recovers with what a member has, and where one may run: the
// volume stays there.
func TestRestoreJobRunsAsMember(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for name, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if q != "" {
				l[name] = resource.MustParse(q)
			}
		}
		return l
	}
	for _, c := range []struct {
		name                     string
		requests, limits         corev1.ResourceList
		wantRequests, wantLimits corev1.ResourceList
	}{
		{"nothing is said", nil, nil, list("100m", "256Mi"), list("2", "1Gi")},
		{"more", list("4", "8Gi"), list("8", "16Gi"), list("4", "8Gi"), list("8", "16Gi")},
		{"less", list("10m", "64Mi"), list("100m", "128Mi"), list("100m", "256Mi"), list("2", "1Gi")},
		{"requests alone", list("", "8Gi"), nil, list("100m", "8Gi"), nil},
		{"limits alone", nil, list("", "8Gi"), list("100m", "8Gi"), list("", "8Gi")},
	} {
		s := fetching()
		s.cluster.Common().Resources = corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}
		has := objectOf[batchv1.Job](t, restoreJob(s)).Spec.Template.Spec.Containers[0].Resources
		if diff := cmp.Diff([]corev1.ResourceList{c.wantRequests, c.wantLimits}, []corev1.ResourceList{has.Requests, has.Limits}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	s := fetching()
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	where := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}
	s.cluster.Common().Affinity = &corev1.Affinity{NodeAffinity: where, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	if diff := cmp.Diff(&corev1.Affinity{NodeAffinity: where}, objectOf[batchv1.Job](t, restoreJob(s)).Spec.Template.Spec.Affinity); diff != "" {
		t.Errorf("where it runs (-want +got):\n%s", diff)
	}
}

// Its pod may say how far it is, and nothing else.
func TestRestoreAccess(t *testing.T) {
	rules := objectOf[rbacv1.Role](t, restoreAccess(fetching())[1]).Rules
	if len(rules) != 1 || !slices.Equal(rules[0].Verbs, []string{"patch"}) || !slices.Equal(rules[0].Resources, []string{"configmaps"}) || !slices.Equal(rules[0].ResourceNames, []string{"copy-restore"}) {
		t.Errorf("%+v", rules)
	}
}
