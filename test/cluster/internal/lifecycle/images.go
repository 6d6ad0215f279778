package lifecycle

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
)

// LoadImages gives an engine's images to every node that lacks them, and
// writes them into the state folder's list when all have them. With lines, the
// images are of these alone.
func LoadImages(dir layout.Dir, engine string, lines []string, images []image.Image) error {
	err := artifact.RunTimed("giving the images of "+engine+" to the nodes", func() error {
		return node.OnAll(func(n layout.Node) error {
			for _, image := range images {
				if err := loadInto(n, image); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return listImages(dir, engine, lines, images)
}

// listImages puts an engine's images in the place of those that the state
// folder's list had of it, or of its lines.
func listImages(dir layout.Dir, engine string, lines []string, images []image.Image) error {
	var all []image.Image
	content, err := os.ReadFile(dir.ImagesDir())
	if err == nil {
		err = json.Unmarshal(content, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all = slices.DeleteFunc(all, func(i image.Image) bool {
		replaced := len(lines) == 0 || slices.Contains(lines, i.Line)
		return i.Engine == engine && replaced || i.Engine == ""
	})
	if content, err = json.MarshalIndent(append(all, images...), "", "  "); err != nil {
		return err
	}
	return layout.WriteFile(dir.ImagesDir(), append(content, '\n'), 0o644)
}

func loadInto(n layout.Node, p image.Image) error {
	if !node.HasImage(n, p.Refs[0]) {
		if err := node.LoadImage(n, p.Archive); err != nil {
			return err
		}
	}
	if err := node.TagDigest(n, p.Refs[0]); err != nil {
		return err
	}
	for _, ref := range p.Refs[1:] {
		if err := node.TagImage(n, p.Refs[0], ref); err != nil {
			return err
		}
	}
	return nil
}
