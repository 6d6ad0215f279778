package accounts

import (
	"strings"
	"testing"
)

func TestBootstrapStatements(t *testing.T) {
	statements := BootstrapStatements("o'brien")
	at := func(part string) int {
		for i, s := range statements {
			if strings.Contains(s, part) {
				return i
			}
		}
		t.Fatalf("no statement with %q", part)
		return -1
	}
	if at("sql_log_bin = OFF") != 0 || at("RESET BINARY LOGS") != len(statements)-1 {
		t.Errorf("the statements are transactions: %q", statements)
	}
	if at("super_read_only = OFF") > at("CREATE USER 'holdfast'") || at("super_read_only = ON") < at("ACCOUNT LOCK") {
		t.Errorf("the server is read-only in between, or stays writable: %q", statements)
	}
	if !strings.HasSuffix(statements[at("CREATE USER 'holdfast'@'localhost'")], "AS 'o''brien'") {
		t.Error("the agent's account is not the user's")
	}
}

// A member that joins cannot be cloned over, since its account has no privilege for it. A
// Job that copies may do nothing else, and has no member's certificate.
func TestAccountsHaveTheLeastPrivileges(t *testing.T) {
	subjects := map[string]string{Recovery: "/CN=holdfast-member", Clone: "/CN=holdfast-member", Copier: "/CN=holdfast-copier"}
	for _, a := range certified {
		for _, s := range a.createStatements() {
			if strings.HasPrefix(s, "CREATE USER") && !strings.Contains(s, "REQUIRE SUBJECT '"+subjects[a.name]+"'") {
				t.Errorf("needs no certificate: %s", s)
			}
			if a.name == Recovery && strings.Contains(s, "BACKUP_ADMIN") {
				t.Errorf("may clone: %s", s)
			}
			if strings.Contains(s, "ALL") || strings.Contains(s, "GRANT OPTION") {
				t.Errorf("has too much: %s", s)
			}
			if a.name != Recovery && strings.HasPrefix(s, "GRANT") && !strings.Contains(s, "BACKUP_ADMIN ON *.*") && !strings.Contains(s, "SELECT ON performance_schema.replication_") {
				t.Errorf("may do more than copy: %s", s)
			}
		}
	}
}

func TestQuote(t *testing.T) {
	if got := Quote("a'b\\c\n"); got != `'a''b\\c\n'` {
		t.Errorf("got %s", got)
	}
}
