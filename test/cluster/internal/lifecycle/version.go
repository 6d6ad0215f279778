package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// chooseVersion is the minor version of Kubernetes to start: that of the cluster which the
// state folder holds, or the one that is asked for. Programs of another minor version
// over the objects of a cluster would be an upgrade of it, or worse, a downgrade.
func chooseVersion(dir layout.Dir, asked string) (string, error) {
	if asked != "" {
		if _, err := artifact.KubernetesVersion(asked); err != nil {
			return "", err
		}
	}
	holds, err := readVersion(dir)
	if err != nil || holds == "" {
		return asked, err
	}
	if asked != "" && asked != holds {
		return "", fmt.Errorf("the cluster in %s is of Kubernetes %s, not %s: take it down first (make cluster-down, or down --dir %s), or leave the version out to keep it", dir, holds, asked, dir)
	}
	return holds, nil
}

// readVersion is the minor version of Kubernetes that the state folder holds a cluster of;
// empty where it holds none. A tool that did not record it knew the default alone.
func readVersion(dir layout.Dir) (string, error) {
	content, err := os.ReadFile(dir.JoinPath(started))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	version := strings.TrimSpace(string(content))
	if version == "" {
		version, err = artifact.KubernetesVersion("")
	}
	return artifact.MinorOf(version), err
}
