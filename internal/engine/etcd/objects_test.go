package etcd

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
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

var update = flag.Bool("update", false, "write the golden manifests")

// Golden manifests: the whole set of objects, as it is sent.
func TestObjects(t *testing.T) {
	cases := map[string]func(w *world){
		"minimal": func(*world) {},
		"full": func(w *world) {
			s := &w.c.Spec
			s.Image, s.ImagePullSecrets = "registry.example/etcd:v3.5.26", []corev1.LocalObjectReference{{Name: "pull"}}
			s.Parameters = map[string]string{"snapshot-count": "10000", "auto-compaction-retention": "1h"}
			s.Quota = new(resource.MustParse("256Mi"))
			s.Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
			s.DeletionPolicy = v1alpha1.DeletionDelete
			s.PodLabels = map[string]string{"team": "shop"}
			s.Storage.StorageClass = "standard"
			s.Backup = &v1alpha1.ClusterBackup{}
			w.admit(2)
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 2)
			change(w)
			w.say()
			w.o.Minted = memberset.Minted{
				CA:       map[string][]byte{"tls.crt": []byte("CA")},
				TLS:      map[string][]byte{"tls.crt": []byte("LEAF"), "tls.key": []byte("KEY"), "ca.crt": []byte("CA")},
				Internal: map[string][]byte{memberset.KeyAppCert: []byte("APP"), memberset.KeyAppKey: []byte("APPKEY")},
			}
			d, _ := w.desired()
			d.BackupsLater = false // as once there is a backup
			var out bytes.Buffer
			for _, obj := range clusterObjects(w.c, d) {
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
			golden(t, filepath.Join("testdata", name+".yaml"), out.Bytes())
		})
	}
}

func golden(t *testing.T, file string, got []byte) {
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
