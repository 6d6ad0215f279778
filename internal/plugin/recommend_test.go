package plugin

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func clusterWithAdvice() *v1alpha1.PostgresCluster {
	c := clusterOfThree()
	c.Status.Recommendations = []v1alpha1.RecommendationStatus{
		{Field: "spec.parameters.max_wal_size", Current: "1GB", Value: "2GB", Evidence: "30 of 34 checkpoints in 60 minutes were forced", Since: metav1.NewTime(noon)},
		{Field: "spec.parameters.shared_buffers", Current: "256MB", Value: "512MB", Evidence: "66.7 % of block accesses", Restart: true, Since: metav1.NewTime(noon)},
	}
	return c
}

// The golden files are what kustomize is given in test/kustomization.
func TestRecommendPatch(t *testing.T) {
	for name, all := range map[string]bool{"recommend-patch.yaml": false, "recommend-patch-all.yaml": true} {
		var out bytes.Buffer
		cluster := clusterWithAdvice()
		if err := writePatch(&out, cluster, cluster, "Kustomization flux-system/apps (Flux)", all); err != nil {
			t.Fatal(err)
		}
		compareGolden(t, name, out.String())
	}
	if err := writePatch(&bytes.Buffer{}, clusterOfThree(), clusterOfThree(), "", true); err == nil {
		t.Error("a patch of nothing is written")
	}
}

// A cluster of a Database is declared by that: the patch is one of it.
func TestRecommendPatchOfADatabase(t *testing.T) {
	c := clusterWithAdvice()
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Database", Name: "front", UID: "1", Controller: new(true)}}
	var out bytes.Buffer
	if err := writePatch(&out, declaringObject(c), c, "", false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "kind: Database\nmetadata:\n  name: front\n  namespace: shop\nspec:\n  parameters:\n    max_wal_size: 2GB\n") {
		t.Error(out.String())
	}
}

// Resources are nested, and what changes with them is said.
func TestRecommendResources(t *testing.T) {
	c := clusterOfThree()
	c.Status.Recommendations = []v1alpha1.RecommendationStatus{
		{Field: "spec.resources.limits.memory", Current: "1Gi", Value: "1536Mi", Evidence: "orders-1 was killed", Restart: true, Since: metav1.NewTime(noon)},
		{Field: "spec.resources.requests.memory", Current: "512Mi", Value: "1Gi", Evidence: "orders-1 needed 900 MiB", Restart: true, Computed: []string{"shared_buffers", "work_mem"}, Since: metav1.NewTime(noon)},
		{Field: "spec.resources.requests.cpu", Current: "none", Value: "500m", Evidence: "orders-0 used up to 420m", Restart: true, Since: metav1.NewTime(noon)},
		{Field: "spec.parameters.pg_stat_statements.max", Current: "1000", Value: "2000", Evidence: "dots in a name", Since: metav1.NewTime(noon)},
	}
	var out bytes.Buffer
	if err := writePatch(&out, c, c, "", true); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "recommend-patch-resources.yaml", out.String())
	out.Reset()
	if err := writeRecommendations(&out, c); err != nil || !strings.HasSuffix(out.String(), "\nWith spec.resources.requests.memory change shared_buffers, work_mem.\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestRecommendTable(t *testing.T) {
	var out bytes.Buffer
	want := `FIELD                           CURRENT  VALUE  TAKES    EVIDENCE
spec.parameters.max_wal_size    1GB      2GB    reload   30 of 34 checkpoints in 60 minutes were forced
spec.parameters.shared_buffers  256MB    512MB  restart  66.7 % of block accesses
`
	if err := writeRecommendations(&out, clusterWithAdvice()); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := writeRecommendations(&out, clusterOfThree()); err != nil || out.String() != "Nothing is recommended.\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// With mode Apply, what is not tried says why. Where no value fits, none is shown, and none is
// in a patch.
func TestRecommendShowsWhatIsNotTried(t *testing.T) {
	c := clusterWithAdvice()
	c.Spec.Tuning.Mode = v1alpha1.TuningApply
	list := c.Status.Recommendations
	list[0].Untried = &v1alpha1.UntriedStatus{Reason: "VolumeUsage", Message: "more than 70 % of a member's volume are in use", Since: metav1.NewTime(noon)}
	list[1].Field, list[1].Value, list[1].Restart = "spec.parameters.work_mem", "", false
	list[1].Untried = &v1alpha1.UntriedStatus{Reason: "MemoryLimit", Message: "spec.resources.limits.memory allows no larger value"}
	var out bytes.Buffer
	want := `FIELD                         CURRENT  VALUE  TAKES   EVIDENCE
spec.parameters.max_wal_size  1GB      2GB    reload  30 of 34 checkpoints in 60 minutes were forced
spec.parameters.work_mem      256MB    -      reload  66.7 % of block accesses
spec.parameters.max_wal_size is not tried: more than 70 % of a member's volume are in use (VolumeUsage).
spec.parameters.work_mem is not tried: spec.resources.limits.memory allows no larger value (MemoryLimit).
`
	if err := writeRecommendations(&out, c); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := writePatch(&out, c, c, "", true); err != nil || strings.Contains(out.String(), "work_mem") || !strings.Contains(out.String(), "max_wal_size: 2GB") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func clusterWithTuning() *v1alpha1.PostgresCluster {
	c := clusterWithAdvice()
	c.Spec.Tuning.Mode = v1alpha1.TuningApply
	c.Status.Tuning = &v1alpha1.TuningStatus{
		Settings: []v1alpha1.TunedSettingStatus{{Name: "max_wal_size", Value: "1GB", From: "512MB", Evidence: "47 % were left", Since: metav1.NewTime(noon)}},
		Trial:    &v1alpha1.TuningTrialStatus{Name: "work_mem", Value: "8MB", From: "4MB", Evidence: "100 temporary files", Since: metav1.NewTime(noon)},
		Resting: []v1alpha1.RestingSettingStatus{
			{Name: "work_mem", Value: "32MB", Reason: "it is no better", Quarantined: true, Until: metav1.NewTime(noon)},
			{Name: "max_wal_size", Value: "2GB", Reason: "orders-1 leads", Until: metav1.NewTime(noon)},
		},
	}
	return c
}

// What is tuned is shown with what became of it; a patch has what is kept, and not its next
// value.
func TestRecommendShowsTuning(t *testing.T) {
	c := clusterWithTuning()
	var out bytes.Buffer
	if err := writeTuning(&out, c.Status.Tuning); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"TUNED                         FROM   VALUE  STATE",
		"spec.parameters.max_wal_size  512MB  1GB    kept", "spec.parameters.work_mem      4MB    8MB    tried since " + noon.Format("2006-01-02 15:04:05"),
		"32MB   quarantined until " + noon.Format("2006-01-02"), "2GB    rests until " + noon.Format("2006-01-02"), "47 % were left", "orders-1 leads",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := writeTuning(&out, &v1alpha1.TuningStatus{}); err != nil || out.Len() > 0 {
		t.Errorf("%v: %q", err, out.String())
	}
	// What another client wrote is no patch, and its text stays in the comment.
	c.Status.Tuning.Settings[0].Evidence = "47 %\nwere left"
	c.Status.Tuning.Settings = append(c.Status.Tuning.Settings, v1alpha1.TunedSettingStatus{Name: "fsync", Value: "off"}, v1alpha1.TunedSettingStatus{Name: "work_mem", Value: "x"})
	if err := writePatch(&out, c, c, "", true); err != nil {
		t.Fatal(err)
	}
	for want, is := range map[string]bool{
		"fsync": false, "    max_wal_size: 1GB\n": true, "    max_wal_size: 2GB\n": false, "    shared_buffers: 512MB\n": true, "work_mem": false,
		"# spec.parameters.max_wal_size: 1GB, as it is tuned: 47 % were left\n": true,
	} {
		if strings.Contains(out.String(), want) != is {
			t.Errorf("%q is %v in the patch:\n%s", want, !is, out.String())
		}
	}
}
