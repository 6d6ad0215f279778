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
		{14, "autovacuum_worker_slots", Unknown},
		{18, "autovacuum_worker_slots", Restart},
		{16, "vacuum_buffer_usage_limit", Reload},
	} {
		if got := ForPostgres(c.major).EffectOf(c.name); got != c.want {
			t.Errorf("%s of PostgreSQL %d: %s, want %s", c.name, c.major, got, c.want)
		}
	}
}

func TestEffectOfMySQL(t *testing.T) {
	for name, want := range map[string]Effect{
		"max_connections": Reload, "innodb_buffer_pool_size": Reload, "innodb_redo_log_capacity": Reload,
		"sort_buffer_size": NewSessions, "SQL_MODE": NewSessions, "binlog_format": NewSessions,
		"innodb_buffer_pool_instances": Restart, "performance_schema": Restart, "thread_stack": Restart,
		"no_such_variable": Unknown,
	} {
		for _, version := range []string{"9.7.4", "9.7", "8.4.6"} {
			if got := ForMySQL(version).EffectOf(name); got != want {
				t.Errorf("%s of MySQL %s: %s, want %s", name, version, got, want)
			}
		}
	}
}

// A catalogue says which version it was taken from: the nearest one before, or the oldest.
func TestCatalogueSaysWhatItIsOf(t *testing.T) {
	for _, c := range []struct {
		got     Catalogue
		version string
		exact   bool
	}{
		{ForPostgres(13), "14", false}, {ForPostgres(14), "14", true}, {ForPostgres(15), "15", true}, {ForPostgres(16), "16", true},
		{ForPostgres(17), "17", true}, {ForPostgres(18), "18", true}, {ForPostgres(19), "18", false},
		{ForMySQL("9.7.4"), "9.7", true}, {ForMySQL("8.4.6"), "9.7", false}, {ForMySQL("10.1"), "9.7", false}, {ForMySQL(""), "9.7", false},
	} {
		if c.got.Version != c.version || c.got.Exact != c.exact {
			t.Errorf("that of %s, exact: %v, want %s, %v", c.got.Version, c.got.Exact, c.version, c.exact)
		}
	}
}

// Each catalogue is whole, and each of its lines has an effect.
func TestCataloguesAreWhole(t *testing.T) {
	for prefix, all := range map[string]map[string]map[string]Setting{"PostgreSQL": readPostgres(), "MySQL": readMySQL()} {
		for version, found := range all {
			if len(found) < 300 {
				t.Errorf("%s %s has %d settings", prefix, version, len(found))
			}
			for name, s := range found {
				if effectOfContext(s.Context) == Unknown {
					t.Errorf("%s of %s %s has the context %q", name, prefix, version, s.Context)
				}
			}
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
	if got := ForPostgres(19).FindFault("work_mem", "63"); got != "" {
		t.Errorf("bounds of another version are applied: %s", got)
	}
}
