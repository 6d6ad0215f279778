package postgres

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

var update = flag.Bool("update", false, "write the golden manifests")

func statefulSetOf(obj runtime.ApplyConfiguration) *appsv1ac.StatefulSetApplyConfiguration {
	set, _ := obj.(*appsv1ac.StatefulSetApplyConfiguration)
	return set
}

// Golden manifests: the whole set of objects, as it is sent.
func TestObjects(t *testing.T) {
	cases := map[string]func(w *world){
		"minimal": func(*world) {},
		"full": func(w *world) {
			s := &w.c.Spec
			s.Image, s.ImagePullSecrets = "registry.example/pg:17.4", []corev1.LocalObjectReference{{Name: "pull"}}
			s.Parameters = map[string]string{"work_mem": "8MB", "max_connections": "200"}
			s.Resources = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			}
			s.DeletionPolicy = v1alpha1.DeletionDelete
			s.NodeSelector = map[string]string{"disk": "ssd"}
			s.Tolerations = []corev1.Toleration{{Key: "db", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
			s.PriorityClassName = "databases"
			s.PodLabels, s.PodAnnotations = map[string]string{"team": "shop"}, map[string]string{"example.com/backup": "no"}
			s.Bootstrap = v1alpha1.PostgresBootstrap{Database: "orders", Owner: "shop"}
			s.Storage.StorageClass = "standard"
			s.Backup = &v1alpha1.ClusterBackup{}
		},
		"archive": func(w *world) { w.c.Spec.Backup = archives() },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 2)
			change(w)
			w.o.Minted = memberset.Minted{
				CA:       map[string][]byte{"tls.crt": []byte("CA")},
				TLS:      map[string][]byte{"tls.crt": []byte("LEAF"), "tls.key": []byte("KEY"), "ca.crt": []byte("CA")},
				Internal: map[string][]byte{keyAppPassword: []byte("p@ss/word")},
			}
			d, _, _ := w.desired()
			d.BackupsLater = false // as once there is a backup
			compareGolden(t, filepath.Join("testdata", name+".yaml"), renderYAML(t, clusterObjects(w.c, d)))
		})
	}
}

// What is computed twice is the same, or a steady cluster would be written to.
func TestObjectsAreDeterministic(t *testing.T) {
	w := settled(t, 3)
	w.c.Spec.Parameters = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
	d, _, _ := w.desired()
	first := renderYAML(t, clusterObjects(w.c, d))
	for range 20 {
		if diff := cmp.Diff(string(first), string(renderYAML(t, clusterObjects(w.c, d)))); diff != "" {
			t.Fatalf("objects differ:\n%s", diff)
		}
	}
}

func renderYAML(t *testing.T, objs []runtime.ApplyConfiguration) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, obj := range objs {
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if data, err = yaml.JSONToYAML(data); err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes()
}

func compareGolden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), write it with go test -update:\n%s", file, diff)
	}
}
