package lifecycle

import (
	"encoding/json"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
)

// LoadImages gives the images to every node that lacks them, and writes the
// list of them to the state folder when all have them.
func LoadImages(dir layout.Dir, images []image.Postgres) error {
	err := artifact.Timed("giving the images to the nodes", func() error {
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
	content, err := json.MarshalIndent(images, "", "  ")
	if err != nil {
		return err
	}
	return layout.WriteFile(dir.Images(), append(content, '\n'), 0o644)
}

func loadInto(n layout.Node, p image.Postgres) error {
	if !node.HasImage(n, p.Refs[0]) {
		if err := node.LoadImage(n, p.Archive); err != nil {
			return err
		}
	}
	if err := node.TagDigest(n, p.Refs[0]); err != nil {
		return err
	}
	for _, ref := range p.Refs[1:] {
		if err := node.Tag(n, p.Refs[0], ref); err != nil {
			return err
		}
	}
	return nil
}
