package lifecycle

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// A cluster keeps its minor version of Kubernetes: another one is refused with what to do.
func TestChooseVersion(t *testing.T) {
	const none = "-"
	version, err := artifact.KubernetesVersion("")
	if err != nil {
		t.Fatal(err)
	}
	standard := artifact.MinorOf(version)
	for _, tc := range []struct {
		name, holds, asked string
		want, fault        string
	}{
		{"nothing is there, and none is asked for", none, "", "", ""},
		{"nothing is there", none, "1.35", "1.35", ""},
		{"a version that cannot be built", none, "1.9", "", "name one of"},
		{"the cluster's own", "v1.35.4", "1.35", "1.35", ""},
		{"none is asked for: the cluster's own", "v1.35.4", "", "1.35", ""},
		{"another one", "v1.35.4", "1.37", "", "cluster-down"},
		{"a cluster of the tool that recorded no version", "", "", standard, ""},
		{"such a cluster, and another version", "", "1.37", "", "cluster-down"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := layout.Dir(t.TempDir())
			if tc.holds != none {
				if err := os.WriteFile(dir.JoinPath(started), []byte(tc.holds), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := chooseVersion(dir, tc.asked)
			if got != tc.want || (err != nil) != (tc.fault != "") || err != nil && !strings.Contains(err.Error(), tc.fault) {
				t.Errorf("%q, %v; want %q, %q", got, err, tc.want, tc.fault)
			}
		})
	}
}
