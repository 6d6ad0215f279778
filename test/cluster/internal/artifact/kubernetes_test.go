package artifact

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each minor version is of the release that its folder says, and kept apart from others.
func TestKubernetesVersions(t *testing.T) {
	minors, err := ListKubernetes()
	if err != nil {
		t.Fatal(err)
	}
	if len(minors) != 3 {
		t.Errorf("there are %v: the newest three are supported", minors)
	}
	modules := map[string]bool{}
	for _, minor := range minors {
		module, version, err := findKubernetes(minor)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(version, "v"+minor+".") {
			t.Errorf("%s is built of %s", minor, version)
		}
		modules[module] = true
	}
	if len(modules) != len(minors) {
		t.Errorf("%v are built of %v", minors, modules)
	}
	standard, err := KubernetesVersion("")
	if err != nil || MinorOf(standard) != "1.36" {
		t.Errorf("the default is %q: %v", standard, err)
	}
	_, err = KubernetesVersion("1.9")
	if err == nil || !strings.Contains(err.Error(), minors[0]) {
		t.Errorf("a version that is not here: %v", err)
	}
}

func TestSortedMinors(t *testing.T) {
	got := sortedMinors(map[string]string{"1.100": "", "1.9": "", "1.36": ""})
	if diff := cmp.Diff([]string{"1.9", "1.36", "1.100"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMinorOf(t *testing.T) {
	for version, want := range map[string]string{"v1.36.3": "1.36", "v1.37.0-rc.1": "1.37", "1": "1"} {
		if got := MinorOf(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
