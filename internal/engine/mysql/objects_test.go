package mysql

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
			s.Image, s.ImagePullSecrets = "registry.example/mysql:9.7.4", []corev1.LocalObjectReference{{Name: "pull"}}
			s.Parameters = map[string]string{"max_connections": "200"}
			s.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}}
			s.DeletionPolicy = v1alpha1.DeletionDelete
			s.Bootstrap = v1alpha1.MySQLBootstrap{Database: "orders", Owner: "shop"}
			s.Storage.StorageClass = "standard"
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			change(w)
			w.o.Minted = memberset.Minted{
				CA:       map[string][]byte{"tls.crt": []byte("CA")},
				TLS:      map[string][]byte{"tls.crt": []byte("LEAF"), "tls.key": []byte("KEY"), "ca.crt": []byte("CA")},
				Internal: map[string][]byte{keyAppPassword: []byte("p@ss/word")},
			}
			d, _, _ := w.desired()
			compareGolden(t, filepath.Join("testdata", name+".yaml"), renderYAML(t, clusterObjects(w.c, d)))
		})
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
