package clone

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
)

// MySQL limits a clone by whole MiB a second, and gives each thread one at least.
func TestSettingsOfASeed(t *testing.T) {
	cases := []struct {
		name               string
		bandwidth          int64
		mebibytes, threads string
	}{
		{"no limit", 0, "", ""},
		{"the least limit", 64 << 10, "1", "1"},
		{"one that is no whole number", 5<<20 + 1, "5", "5"},
		{"one beyond the threads", 50 << 20, "50", "16"},
		{"more than MySQL takes", 1 << 50, "1048576", "16"},
	}
	for _, c := range cases {
		s := Seed{Dir: "/seed", Bandwidth: c.bandwidth, Settings: settings.Input{Host: "copier", ServerID: 1, RunDir: t.TempDir(), Memory: settings.Memory{Request: settings.LeastMemory}}}
		file, err := s.writeSettings()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			found[strings.TrimPrefix(name, "loose_")] = strings.Trim(value, `"`)
		}
		if found["clone_max_data_bandwidth"] != c.mebibytes || found["clone_max_concurrency"] != c.threads || found["innodb_redo_log_capacity"] == "" {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}
