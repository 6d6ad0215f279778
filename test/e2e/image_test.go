//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// movingTag: a tag that stands for a newer minor version by now does not bring
// it into a cluster whose first member ran the older.
func movingTag(t *testing.T) {
	line, older, newer := needMinors(t)
	// Of the repository that the images have: by another name's digest the
	// runtime would not know them.
	repository, _, _ := strings.Cut(imageRef(t, "postgres", older), ":")
	moving := repository + ":" + line + "-moving"
	tagImage(t, older, moving)
	c := newCluster(t, 1, func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Version, obj.Spec.Image = v1alpha1.PostgresVersion(line), moving
	})
	obj := c.waitReady()
	image := obj.Status.Image
	if obj.Status.Version != older || !strings.Contains(image, "@sha256:") {
		t.Fatalf("status says version %s and image %s, want %s by its digest", obj.Status.Version, image, older)
	}
	first := c.podIncarnation(0)
	tagImage(t, newer, moving)
	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Replicas = new(int32(2)) })
	obj = c.waitReady()
	if obj.Status.Image != image {
		t.Errorf("the image became %s, before %s", obj.Status.Image, image)
	}
	for n := range 2 {
		if v := c.runSQL(n, "show server_version"); !strings.HasPrefix(v, older) {
			t.Errorf("%s runs %s, want %s", c.podName(n), v, older)
		}
	}
	if now := c.podIncarnation(0); now != first {
		t.Errorf("the primary was touched: %s, before %s", now, first)
	}
	c.editCluster(func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Version, obj.Spec.Image = v1alpha1.PostgresVersion(newer), ""
	})
	if obj = c.waitReady(); obj.Status.Version != newer {
		t.Errorf("status says version %s, want %s", obj.Status.Version, newer)
	}
}

// tagImage lets a reference stand for a version's image on all nodes.
func tagImage(t *testing.T, version, as string) {
	t.Helper()
	tagOnNodes(t, imageRef(t, "postgres", version), as)
}

// tagOnNodes gives an image another name on all nodes.
func tagOnNodes(t *testing.T, ref, as string) {
	t.Helper()
	power.RLock()
	defer power.RUnlock()
	out, err := exec.CommandContext(t.Context(), filepath.Join(state, "bin", "cluster"), "--dir", state, "tag", ref, as).CombinedOutput()
	must(t, err, "tag the image: "+string(out))
}
