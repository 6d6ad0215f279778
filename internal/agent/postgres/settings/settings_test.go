package settings

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		mustWrite(t, path, got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestSettingsGolden(t *testing.T) {
	base := Input{Major: 17, Member: "orders-0", Port: 5432, RunDir: "/run/holdfast",
		VolumeSize: 10 * gibibyte, Resources: Resources{MemoryLimit: 2 * gibibyte, MemoryRequest: 1 * gibibyte, CPU: 2000}}
	standby := base
	standby.Member, standby.Upstream = "orders-1", "host='orders-0.orders-members.shop.svc'"
	standby.Floors = map[string]int64{"max_connections": 300, "max_worker_processes": 8}
	golden(t, "primary.conf", RenderSettings(ComputeSettings(base)))
	golden(t, "standby.conf", RenderSettings(ComputeSettings(standby)))
	archives := base
	archives.Archive = ArchiveCommand("/opt/holdfast/holdfast", "/run/holdfast/archive.sock")
	golden(t, "archives.conf", RenderSettings(ComputeSettings(archives)))
	golden(t, "access.conf", RenderHBA()+"\n"+RenderIdent("postgres", agentapi.MemberName))
}

// The page on PostgresClusters lists every default that is not PostgreSQL's own, with its
// value where that is a number or a switch.
func TestPageListsDefaultSettings(t *testing.T) {
	const page = "../../../../docs/reference/postgrescluster.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n| setting | default |\n")
	table, _, _ := strings.Cut(after, "\n\n")
	small := defaultSettings(Input{Major: 17, VolumeSize: gibibyte})
	large := defaultSettings(Input{Major: 17, VolumeSize: 100 * gibibyte, Resources: Resources{MemoryRequest: 64 * gibibyte, CPU: 32000}})
	plain := regexp.MustCompile(`^(on|off|[0-9.]+)$`)
	for name, value := range small {
		var row string
		for line := range strings.Lines(table) {
			if names, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | "); strings.Contains(names, "`"+name+"`") {
				row = line
			}
		}
		switch {
		case row == "":
			t.Errorf("%s: the table of defaults has no row for %s, which is %s", page, name, value)
		case value == large[name] && plain.MatchString(value) && !regexp.MustCompile(`\b`+regexp.QuoteMeta(value)+`\b`).MatchString(row):
			t.Errorf("%s: %s is %s by default, which its row does not say: %s", page, name, value, row)
		}
	}
}

// What is said to follow the memory request is what follows it.
func TestComputedFromMemory(t *testing.T) {
	in := Input{Major: 17, Member: "orders-0", Resources: Resources{MemoryRequest: 2 * gibibyte}}
	less := ComputeSettings(in)
	in.Resources.MemoryRequest *= 2
	var changed []string
	for name, value := range ComputeSettings(in) {
		if value != less[name] {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	if want := tune.ListComputed(tune.Spec{Engine: tune.PostgreSQL}, "requests.memory"); !slices.Equal(changed, want) {
		t.Errorf("%v change, and %v are said to", changed, want)
	}
}

func TestSettings(t *testing.T) {
	cases := []struct {
		name    string
		in      Input
		setting string
		want    string
	}{
		{"a declared parameter goes over a default", Input{Parameters: map[string]string{"work_mem": "7MB"}}, "work_mem", "7MB"},
		{"a declared parameter never goes over Holdfast's own", Input{Parameters: map[string]string{"ssl": "off"}}, "ssl", "on"},
		{"a standby keeps its primary's larger setting", Input{Floors: map[string]int64{"max_connections": 200}, Parameters: map[string]string{"max_connections": "50"}}, "max_connections", "200"},
		{"a standby takes a larger declared setting", Input{Floors: map[string]int64{"max_connections": 200}, Parameters: map[string]string{"max_connections": "500"}}, "max_connections", "500"},
		{"senders are never fewer than members need", Input{Parameters: map[string]string{"max_wal_senders": "2"}}, "max_wal_senders", "20"},
		{"senders may be more", Input{Parameters: map[string]string{"max_wal_senders": "40"}}, "max_wal_senders", "40"},
		{"a standby's senders keep to the floor", Input{Floors: map[string]int64{"max_wal_senders": 40}}, "max_wal_senders", "40"},
		{"what keeps replay back is no parameter", Input{Parameters: map[string]string{"recovery_min_apply_delay": "1h"}}, "recovery_min_apply_delay", ""},
		{"what a promotion waits for is no parameter", Input{Parameters: map[string]string{"recovery_end_command": "sleep 60"}}, "recovery_end_command", ""},
		{"a failed fsync is never tried again", Input{Parameters: map[string]string{"data_sync_retry": "on"}}, "data_sync_retry", ""},
		{"readers hold replay as declared", Input{Parameters: map[string]string{"max_standby_streaming_delay": "-1"}}, "max_standby_streaming_delay", "-1"},
		{"readers hold no promotion", Input{Promoting: true, Parameters: map[string]string{"max_standby_streaming_delay": "-1"}}, "max_standby_streaming_delay", "0"},
		{"a primary in synchronous mode waits", Input{SynchronousNames: `ANY 1 ("orders-1")`}, "synchronous_standby_names", `ANY 1 ("orders-1")`},
		{"memory follows the request", Input{Resources: Resources{MemoryLimit: 8 * gibibyte, MemoryRequest: 4 * gibibyte}}, "shared_buffers", "1024MB"},
		{"a limit that may be the node's is not used up", Input{Resources: Resources{MemoryLimit: 64 * gibibyte}}, "shared_buffers", "128MB"},
		{"a small volume gives slots little", Input{VolumeSize: 1 * gibibyte}, "max_slot_wal_keep_size", "204MB"},
		{"an archive is given a segment every few minutes", Input{Archive: "x"}, "archive_timeout", "5min"},
		{"or as often as declared", Input{Archive: "x", Parameters: map[string]string{"archive_timeout": "30s"}}, "archive_timeout", "30s"},
		{"without an archive segments are never closed early", Input{}, "archive_timeout", ""},
		{"a program's name with signs that mean something", Input{Archive: ArchiveCommand("/a b/100%'s", "/run/s")}, "archive_command", `'/a b/100%%'\''s' wal archive --socket '/run/s' %f`},
		{"statements that may carry passwords are not kept", Input{Parameters: map[string]string{"shared_preload_libraries": "auto_explain, pg_stat_statements"}}, "pg_stat_statements.track_utility", "off"},
		{"however the library is written", Input{Parameters: map[string]string{"shared_preload_libraries": `"$libdir/pg_stat_statements.so"`}}, "pg_stat_statements.track_utility", "off"},
		{"but as declared", Input{Parameters: map[string]string{"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_utility": "on"}}, "pg_stat_statements.track_utility", "on"},
		{"without the library there is no such setting", Input{Parameters: map[string]string{"shared_preload_libraries": "auto_explain"}}, "pg_stat_statements.track_utility", ""},
		{"ALTER SYSTEM is off where it can be", Input{Major: 17}, "allow_alter_system", "off"},
		{"older versions know no allow_alter_system", Input{Major: 16}, "allow_alter_system", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := ComputeSettings(c.in)[c.setting]; got != c.want {
				t.Errorf("%s = %q, want %q", c.setting, got, c.want)
			}
		})
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
