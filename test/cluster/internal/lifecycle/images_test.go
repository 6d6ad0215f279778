package lifecycle

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// Loading one engine's images, or those of one line, leaves the others listed.
func TestListKeepsOthers(t *testing.T) {
	dir := layout.Dir(t.TempDir())
	postgres := image.Image{Engine: "postgres", Line: "17", Version: "17.12"}
	older, newer := image.Image{Engine: "etcd", Version: "3.6.11"}, image.Image{Engine: "etcd", Version: "3.6.12"}
	for engine, images := range map[string][]image.Image{"postgres": {postgres}, "etcd": {older}} {
		if err := listImages(dir, engine, nil, images); err != nil {
			t.Fatal(err)
		}
	}
	if err := listImages(dir, "etcd", nil, []image.Image{newer}); err != nil {
		t.Fatal(err)
	}
	other := image.Image{Engine: "postgres", Line: "18", Version: "18.6"}
	if err := listImages(dir, "postgres", []string{"18"}, []image.Image{other}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(dir.ImagesDir())
	if err != nil {
		t.Fatal(err)
	}
	var listed []image.Image
	if err := json.Unmarshal(content, &listed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]image.Image{postgres, newer, other}, listed); diff != "" {
		t.Error(diff)
	}
}
