package postgres

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/memberapi"
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
	base := settingsInput{Major: 17, Member: "orders-0", Port: 5432, RunDir: "/run/holdfast",
		VolumeSize: 10 * gibibyte, Resources: Resources{MemoryLimit: 2 * gibibyte, MemoryRequest: 1 * gibibyte, CPU: 2000}}
	standby := base
	standby.Member, standby.Upstream = "orders-1", "host='orders-0.orders-members.shop.svc'"
	standby.Floors = map[string]int64{"max_connections": 300, "max_worker_processes": 8}
	golden(t, "primary.conf", renderSettings(settings(base)))
	golden(t, "standby.conf", renderSettings(settings(standby)))
	archives := base
	archives.Archive = archiveCommand("/opt/holdfast/holdfast", "/run/holdfast/archive.sock")
	golden(t, "archives.conf", renderSettings(settings(archives)))
	golden(t, "access.conf", renderHBA()+"\n"+renderIdent("postgres", memberapi.MemberName))
}

func TestSettings(t *testing.T) {
	cases := []struct {
		name    string
		in      settingsInput
		setting string
		want    string
	}{
		{"a declared parameter goes over a default", settingsInput{Parameters: map[string]string{"work_mem": "7MB"}}, "work_mem", "7MB"},
		{"a declared parameter never goes over Holdfast's own", settingsInput{Parameters: map[string]string{"ssl": "off"}}, "ssl", "on"},
		{"a standby keeps its primary's larger setting", settingsInput{Floors: map[string]int64{"max_connections": 200}, Parameters: map[string]string{"max_connections": "50"}}, "max_connections", "200"},
		{"a standby takes a larger declared setting", settingsInput{Floors: map[string]int64{"max_connections": 200}, Parameters: map[string]string{"max_connections": "500"}}, "max_connections", "500"},
		{"senders are never fewer than members need", settingsInput{Parameters: map[string]string{"max_wal_senders": "2"}}, "max_wal_senders", "20"},
		{"senders may be more", settingsInput{Parameters: map[string]string{"max_wal_senders": "40"}}, "max_wal_senders", "40"},
		{"a standby's senders keep to the floor", settingsInput{Floors: map[string]int64{"max_wal_senders": 40}}, "max_wal_senders", "40"},
		{"memory follows the request", settingsInput{Resources: Resources{MemoryLimit: 8 * gibibyte, MemoryRequest: 4 * gibibyte}}, "shared_buffers", "1024MB"},
		{"a limit that may be the node's is not used up", settingsInput{Resources: Resources{MemoryLimit: 64 * gibibyte}}, "shared_buffers", "128MB"},
		{"a small volume gives slots little", settingsInput{VolumeSize: 1 * gibibyte}, "max_slot_wal_keep_size", "204MB"},
		{"an archive is given a segment every few minutes", settingsInput{Archive: "x"}, "archive_timeout", "5min"},
		{"or as often as declared", settingsInput{Archive: "x", Parameters: map[string]string{"archive_timeout": "30s"}}, "archive_timeout", "30s"},
		{"without an archive segments are never closed early", settingsInput{}, "archive_timeout", ""},
		{"a program's name with signs that mean something", settingsInput{Archive: archiveCommand("/a b/100%'s", "/run/s")}, "archive_command", `'/a b/100%%'\''s' wal archive --socket '/run/s' %f`},
		{"ALTER SYSTEM is off where it can be", settingsInput{Major: 17}, "allow_alter_system", "off"},
		{"older versions know no allow_alter_system", settingsInput{Major: 16}, "allow_alter_system", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := settings(c.in)[c.setting]; got != c.want {
				t.Errorf("%s = %q, want %q", c.setting, got, c.want)
			}
		})
	}
}

func TestRenderSettingsKeepsAValueInItsQuotes(t *testing.T) {
	got := renderSettings(map[string]string{"a": "it's\nfsync = off", "b": `back\slash'`})
	want := "a = 'it''s\\nfsync = off'\nb = 'back\\\\slash'''\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRefusedSettings(t *testing.T) {
	cases := []struct{ name, stderr, want string }{
		{"an unknown parameter is named",
			"2026-01-01 00:00:00.000 GMT [7] LOG:  unrecognized configuration parameter \"max_connectionz\" in file \"/run/holdfast/candidate.conf\" line 3\n2026-01-01 00:00:00.000 GMT [7] FATAL:  configuration file \"/run/holdfast/candidate.conf\" contains errors\n",
			"max_connectionz: unrecognized configuration parameter"},
		{"an invalid value is named",
			"LOG:  invalid value for parameter \"shared_buffers\": \"abc\"\nFATAL:  configuration file \"x\" contains errors\n",
			"shared_buffers: invalid value: \"abc\""},
		{"a value out of range is named",
			"LOG:  0 is outside the valid range for parameter \"max_connections\" (1 .. 262143)\n",
			"max_connections: 0 is outside the valid range (1 .. 262143)"},
		{"anything else is passed on", "cannot execute\n", "cannot execute"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := refusedSettings(c.stderr); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCandidates(t *testing.T) {
	a, b, none := map[string]string{"a": "1"}, map[string]string{"b": "1"}, map[string]string{}
	cases := []struct {
		name             string
		declared, proven map[string]string
		want             []map[string]string
	}{
		{"nothing declared is tried once", nil, nil, []map[string]string{nil}},
		{"what was never proven falls back to nothing", a, nil, []map[string]string{a, none}},
		{"what is proven falls back to nothing", a, a, []map[string]string{a, none}},
		{"a change falls back to what is proven, then to nothing", b, a, []map[string]string{b, a, none}},
		{"a change from nothing falls back to nothing", a, none, []map[string]string{a, none}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, candidates(c.declared, c.proven)); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUpstreamAndSlotName(t *testing.T) {
	o := Options{RunDir: "/run/holdfast",
		DatabaseAddress:  func(pod string) string { return pod + ".orders-members.shop.svc:5432" },
		ReadWriteAddress: "orders-rw.shop.svc:5432"}
	if got := upstream(o, "orders-0", "10.0.0.7", "orders-1"); !strings.Contains(got, "hostaddr='10.0.0.7,'") {
		t.Errorf("%s lacks the address", got)
	}
	got := upstream(o, "orders-0", "", "orders-1")
	for _, part := range []string{"host='orders-0.orders-members.shop.svc,orders-rw.shop.svc'", "port='5432,5432'", "sslmode='verify-full'", "application_name='orders-1'"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s lacks %s", got, part)
		}
	}
	if got := slotName("my-orders-1"); got != "holdfast_my_orders_1" {
		t.Errorf("slot name is %s", got)
	}
}

func TestTroubleIn(t *testing.T) {
	cases := []struct {
		line string
		want trouble
	}{
		{"FATAL:  could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed", troubleCopy},
		{"FATAL:  could not start WAL streaming: ERROR:  can no longer access replication slot \"holdfast_a_1\"", troubleCopy},
		{"FATAL:  highest timeline 1 of the primary is behind recovery timeline 2", troubleAhead},
		{"FATAL:  database system identifier differs between the primary and standby", troubleForeign},
		{"LOG:  recovery has paused", troubleRestart},
		{"LOG:  started streaming WAL from primary at 0/4000000 on timeline 1", troubleNone},
	}
	for _, c := range cases {
		if got := troubleIn(c.line); got != c.want {
			t.Errorf("%q: %v, want %v", c.line, got, c.want)
		}
	}
}
