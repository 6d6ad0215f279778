package etcd

import (
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	cases := []struct{ name, running, declared, reason, remedy string }{
		{"the same", "3.5.26", "3.5.26", "", ""},
		{"a newer patch", "3.5.26", "3.5.30", "", ""},
		{"the next minor version", "3.5.26", "3.6.12", "", ""},
		{"from a patch that is too old", "3.5.25", "3.6.12", "UpgradePathRefused", `"3.5.26"`},
		{"likewise a version later", "3.6.10", "3.7.0", "UpgradePathRefused", `"3.6.11"`},
		{"two minor versions at once", "3.5.26", "3.7.0", "UpgradePathRefused", "3.6"},
		{"an older minor version", "3.6.12", "3.5.26", "DowngradeRefused", `"3.6.12"`},
		{"an older patch is taken back", "3.5.26", "3.5.9", "", ""},
		{"a patch with more digits", "3.5.9", "3.5.26", "", ""},
		{"the minor version that runs", "3.5.9", "3.5", "", ""},
		{"the minor version of a patch that is newer than any known", "3.5.200", "3.5", "", ""},
		{"the next one without its patch", "3.5.26", "3.6", "", ""},
		{"likewise from a patch that is too old", "3.5.25", "3.6", "UpgradePathRefused", `"3.5.26"`},
		{"two at once without a patch", "3.5.26", "3.7", "UpgradePathRefused", "3.6"},
		{"an older one without its patch", "3.6.12", "3.5", "DowngradeRefused", `"3.6.12"`},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 3)
			for n := range 3 {
				w.status(n).Version = tc.running
			}
			w.c.Spec.Version = tc.declared
			reason, message := versionRefused(w.c, w.o)
			if reason != tc.reason || !strings.Contains(message, tc.remedy) || reason != "" && !strings.Contains(message, "spec.version") {
				t.Errorf("%s: %s", reason, message)
			}
		})
	}
	t.Run("a failed upgrade may be taken back while a member runs the old version", func(t *testing.T) {
		w := settled(t, 3)
		w.status(2).Version = "3.6.12"
		if reason, message := versionRefused(w.c, w.o); reason != "" {
			t.Errorf("%s: %s", reason, message)
		}
		w.status(0).Version, w.status(1).Version = "3.6.12", "3.6.12"
		if reason, _ := versionRefused(w.c, w.o); reason == "" {
			t.Error("taken back after the whole cluster was upgraded")
		}
	})
	t.Run("a member without a pod may be at the old version", func(t *testing.T) {
		w := settled(t, 3)
		w.status(1).Version, w.status(2).Version = "3.6.12", "3.6.12"
		w.gone(0)
		w.c.Spec.Version = "3.7.0"
		if reason, _ := versionRefused(w.c, w.o); reason == "" || w.plan().Report.Version != "3.5.26" {
			t.Errorf("%q; the cluster is at %s", reason, w.plan().Report.Version)
		}
	})
	t.Run("what is refused changes no pod", func(t *testing.T) {
		w := settled(t, 3)
		w.c.Spec.Version = "3.7.0"
		if got := judge(w.plan()); got.Step != "" || !strings.Contains(strings.Join(got.Facts, " "), "Stalled/UpgradePathRefused") {
			t.Errorf("%+v", got)
		}
	})
}
