package lifecycle

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// What was the cluster's goes with it, and what the nodes were given is not
// believed of the next ones.
func TestRemoveState(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"nodes/node-1/image", "loaded/holdfast-1", "volumes/a", "kubeconfig", "another"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeState(layout.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"another"}, names); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}
