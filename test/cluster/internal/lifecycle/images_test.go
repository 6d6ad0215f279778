package lifecycle

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// Loading one engine's images takes nothing of another's from the list.
func TestListKeepsOtherEngines(t *testing.T) {
	dir := layout.Dir(t.TempDir())
	postgres := image.Image{Engine: "postgres", Line: "17", Version: "17.12"}
	older, newer := image.Image{Engine: "etcd", Version: "3.6.11"}, image.Image{Engine: "etcd", Version: "3.6.12"}
	for engine, images := range map[string][]image.Image{"postgres": {postgres}, "etcd": {older}} {
		if err := list(dir, engine, images); err != nil {
			t.Fatal(err)
		}
	}
	if err := list(dir, "etcd", []image.Image{newer}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(dir.Images())
	if err != nil {
		t.Fatal(err)
	}
	var listed []image.Image
	if err := json.Unmarshal(content, &listed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]image.Image{postgres, newer}, listed); diff != "" {
		t.Error(diff)
	}
}
