//go:build e2e || soak

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// image of a database that the nodes have.
type image struct {
	Engine  string   `json:"engine"`
	Line    string   `json:"line"` // 17 of PostgreSQL, 3.6 of etcd
	Version string   `json:"version"`
	Refs    []string `json:"refs"`
}

func readImages() ([]image, error) {
	data, err := os.ReadFile(filepath.Join(state, "images.json"))
	if err != nil {
		return nil, fmt.Errorf("the images that the nodes have (test/cluster images writes them): %w", err)
	}
	var images []image
	if err := json.Unmarshal(data, &images); err != nil {
		return nil, fmt.Errorf("images.json: %w", err)
	}
	return images, nil
}

// imageVersions are those that the nodes have of a line, the oldest first.
func imageVersions(engine, line string) []string {
	var found []string
	for _, i := range env.images {
		if i.Engine == engine && i.Line == line {
			found = append(found, i.Version)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return patchOf(a) - patchOf(b) })
	return found
}

// patchOf a version is its last number, by which those of a line differ.
func patchOf(version string) int {
	n, err := strconv.Atoi(version[strings.LastIndex(version, ".")+1:])
	if err != nil {
		return -1
	}
	return n
}

// needImages skips a test whose images the nodes lack. That is the only reason
// to skip one.
func needImages(t *testing.T, engine, line string, count int) []string {
	t.Helper()
	have := imageVersions(engine, line)
	if len(have) < count {
		skipTest(t, "needs %d image(s) of %s %s, the nodes have %d (test/cluster images %s)", count, engine, line, len(have), engine)
	}
	return have
}

// needMinors are the oldest and the newest minor version of the newest line of PostgreSQL
// of which the nodes have two.
func needMinors(t *testing.T) (line, older, newer string) {
	t.Helper()
	for _, line := range []string{"18", "17", "15"} {
		if have := imageVersions("postgres", line); len(have) > 1 {
			return line, have[0], have[len(have)-1]
		}
	}
	skipTest(t, "needs two minor versions of one major version of PostgreSQL (test/cluster images postgres)")
	return "", "", ""
}

// needVersion skips a test of a version that the nodes lack.
func needVersion(t *testing.T, engine, line, version string) {
	t.Helper()
	if have := imageVersions(engine, line); !slices.Contains(have, version) {
		skipTest(t, "needs %s %s, the nodes have %q", engine, version, have)
	}
}

// imageRef is the image of a version.
func imageRef(t testing.TB, engine, version string) string {
	t.Helper()
	for _, i := range env.images {
		if i.Engine == engine && i.Version == version && len(i.Refs) > 0 {
			return i.Refs[0]
		}
	}
	t.Fatalf("no image of %s %s", engine, version)
	return ""
}
