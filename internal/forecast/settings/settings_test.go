package settings

import "testing"

func TestEffectOf(t *testing.T) {
	for _, c := range []struct {
		major int
		name  string
		want  Effect
	}{
		{15, "shared_buffers", Restart},
		{15, "work_mem", Reload},
		{15, "max_wal_size", Reload},
		{15, "log_min_duration_statement", Reload},
		{15, "log_connections", NewSessions},
		{15, "timezone", Reload}, // pg_settings has TimeZone
		{15, "pg_stat_statements.max", Unknown},
		{15, "no_such_setting", Unknown},
		{17, "shared_buffers", Restart},
		{17, "autovacuum_max_workers", Restart},
		{18, "autovacuum_max_workers", Reload},
		{14, "shared_buffers", Restart},
	} {
		if got := ForPostgres(c.major).EffectOf(c.name); got != c.want {
			t.Errorf("%s of PostgreSQL %d: %s, want %s", c.name, c.major, got, c.want)
		}
	}
}

func TestCatalogueSaysWhatItIsOf(t *testing.T) {
	for major, exact := range map[int]bool{14: false, 15: true, 17: false} {
		if c := ForPostgres(major); c.Major != 15 || c.Exact != exact {
			t.Errorf("%d: that of %d, exact: %v", major, c.Major, c.Exact)
		}
	}
}

func TestFindFault(t *testing.T) {
	for _, c := range []struct {
		name, value, want string
	}{
		{"work_mem", "16MB", ""},
		{"work_mem", "63", "work_mem: 63 is outside the valid range from 64 to 2147483647 in units of kB"},
		{"work_mem", "64", ""},
		{"work_mem", "1 GB", ""},
		{"work_mem", "4TB", "work_mem: 4TB is outside the valid range from 64 to 2147483647 in units of kB"},
		{"work_mem", "10s", `work_mem: "10s" is no whole number in units of kB`},
		{"work_mem", "much", `work_mem: "much" is no whole number in units of kB`},
		{"shared_buffers", "128kB", ""},
		{"shared_buffers", "120kB", "shared_buffers: 120kB is outside the valid range from 16 to 1073741823 in units of 8kB"},
		{"max_connections", "0", "max_connections: 0 is outside the valid range from 1 to 262143"},
		{"checkpoint_timeout", "15min", ""},
		{"checkpoint_timeout", "2d", "checkpoint_timeout: 2d is outside the valid range from 30 to 86400 in units of s"},
		{"random_page_cost", "1.1", ""},
		{"random_page_cost", "-1", "random_page_cost: -1 is outside the valid range from 0 to 1.79769e+308"},
		{"search_path", "anything", ""},
		{"no_such_setting", "1", ""},
	} {
		if got := ForPostgres(15).FindFault(c.name, c.value); got != c.want {
			t.Errorf("%s = %s: %q, want %q", c.name, c.value, got, c.want)
		}
	}
	if got := ForPostgres(17).FindFault("work_mem", "63"); got != "" {
		t.Errorf("bounds of another version are applied: %s", got)
	}
}
