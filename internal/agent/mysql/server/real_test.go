//go:build mysql

package server_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"database/sql"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/parameters"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/pki"
)

const groupName = "5b8f3c1e-0000-5000-8000-000000000001"

// newMember has data of its own, whose server does not run.
func newMember(t *testing.T) *mysqltest.Member {
	t.Helper()
	m := mysqltest.NewMembers(t, 1)[0]
	m.JoinGroupNamed(groupName)
	if err := m.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRealBootstrap(t *testing.T) {
	m := newMember(t)
	v, err := datavolume.InspectVolume(m.Volume)
	if err != nil || v.Content != datavolume.ContentData || v.Mark.Group != groupName || v.ServerUUID == "" || !v.Version.IsSupported() {
		t.Fatalf("%+v, %v", v, err)
	}
	// Never again, and never over data.
	if err := m.Bootstrap(); err == nil {
		t.Error("data was made over data")
	}
	entries, err := os.ReadDir(filepath.Join(m.Volume, datavolume.DataName))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".pem") {
			t.Errorf("the data holds a key: %s", entry.Name())
		}
	}
	m.Start()
	if text, version, err := m.Programs.ReadVersion(t.Context()); err != nil || m.Query("SELECT VERSION()") != text || version.Series != v.Version.Series {
		t.Errorf("%s, %v, and the server is %s", text, err, m.Query("SELECT VERSION()"))
	}
	for query, want := range map[string]string{
		"SELECT @@GLOBAL.gtid_executed":                                                               "",
		"SELECT @@GLOBAL.super_read_only":                                                             "1",
		"SELECT @@GLOBAL.persisted_globals_load":                                                      "0",
		"SELECT COUNT(*) FROM mysql.user WHERE user = 'root' AND account_locked = 'Y'":                "1",
		"SELECT COUNT(*) FROM mysql.user WHERE user NOT LIKE 'mysql.%' AND user NOT LIKE 'holdfast%'": "1",
		"SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name IN ('clone', 'group_replication') AND plugin_status = 'ACTIVE'": "2",
		"SELECT COUNT(*) FROM performance_schema.persisted_variables":                                                                      "0",
	} {
		if got := m.Query(query); got != want {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
	if err := server.CheckConnection(t.Context(), settings.SocketPath(m.RunDir)); err != nil {
		t.Error(err)
	}
	if err := m.Try("SET PERSIST max_connections = 5"); err == nil {
		m.Stop()
		m.Start()
		if m.Query("SELECT @@GLOBAL.max_connections") == "5" {
			t.Error("a persisted setting holds beside the file")
		}
	}
	m.Stop()
	if _, err := os.Stat(settings.SocketPath(m.RunDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A bootstrap that was killed leaves nothing that looks like data, and the next one works.
func TestRealInterruptedBootstrap(t *testing.T) {
	m := mysqltest.NewMembers(t, 1)[0]
	m.JoinGroupNamed(groupName)
	half := filepath.Join(m.Volume, datavolume.BootstrapName)
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "ibdata1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Bootstrap(); err != nil {
		t.Fatal(err)
	}
}

// Accounts of members need a certificate of the members' CA, of a member's name.
// The account of Jobs that copy is made once, and repaired when a person has changed it:
// otherwise each check would be a transaction.
func TestRealCopierIsEnsured(t *testing.T) {
	m := newMember(t)
	m.Start()
	m.Exec("SET GLOBAL super_read_only = OFF")
	for _, statement := range []string{
		"", "DROP USER holdfast_copier", "ALTER USER holdfast_copier REQUIRE SUBJECT '/CN=other'", "REVOKE BACKUP_ADMIN ON *.* FROM holdfast_copier",
		"REVOKE SELECT ON performance_schema.replication_group_members FROM holdfast_copier",
		"REVOKE SELECT ON performance_schema.replication_connection_status FROM holdfast_copier", // as an earlier agent made it
		"ALTER USER holdfast_copier IDENTIFIED BY 'other'", "ALTER USER holdfast_copier ACCOUNT LOCK", "ALTER USER holdfast_copier PASSWORD EXPIRE",
		"ALTER USER holdfast_copier IDENTIFIED WITH auth_socket", "ALTER USER holdfast_copier PASSWORD EXPIRE INTERVAL 90 DAY",
		"ALTER USER holdfast_copier REQUIRE SUBJECT '/CN=holdfast-copier' AND ISSUER '/CN=other'", "ALTER USER holdfast_copier REQUIRE SSL",
	} {
		if statement != "" {
			m.Exec(statement)
		}
		changed := m.Query("SELECT @@GLOBAL.gtid_executed")
		for try := range 2 {
			if err := accounts.EnsureCopier(t.Context(), m.DB); err != nil {
				t.Fatalf("after %q: %v", statement, err)
			}
			executed := m.Query("SELECT @@GLOBAL.gtid_executed")
			if (executed != changed) != (try == 0 && statement != "") {
				t.Errorf("after %q, time %d: %s, and then %s", statement, try, changed, executed)
			}
			changed = executed
		}
	}
	grants := m.Query("SELECT GROUP_CONCAT(PRIV) FROM mysql.global_grants WHERE USER = 'holdfast_copier'")
	if subject := m.Query("SELECT x509_subject FROM mysql.user WHERE user = 'holdfast_copier'"); grants != "BACKUP_ADMIN" || subject != "/CN=holdfast-copier" {
		t.Errorf("%s for %s", grants, subject)
	}
}

func TestRealAccountsNeedTheMembersCertificate(t *testing.T) {
	m := newMember(t)
	m.Start()
	other, err := pki.NewCA("other", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := m.Settings().CertificateDir
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	member, memberKey := read("server.crt"), read("server.key")
	copier, copierKey := read("copier.crt"), read("copier.key")
	foreign, foreignKey := mysqltest.IssueCertificate(t, other, agentapi.MemberName)
	cases := []struct {
		name             string
		account          string
		certificate, key []byte
		want             bool
	}{
		{"a member", accounts.Recovery, member, memberKey, true},
		{"a member that clones", accounts.Clone, member, memberKey, true},
		{"a Job that copies", accounts.Copier, copier, copierKey, true},
		{"a member as a Job", accounts.Copier, member, memberKey, false},
		{"a Job as a member", accounts.Clone, copier, copierKey, false},
		{"no certificate", accounts.Recovery, nil, nil, false},
		{"a certificate of another CA", accounts.Recovery, foreign, foreignKey, false},
		{"the agent's account", accounts.Agent, member, memberKey, false},
		{"root", "root", member, memberKey, false},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(read("ca.crt"))
			config := &tls.Config{RootCAs: roots, ServerName: mysqltest.Host}
			if c.certificate != nil {
				pair, err := tls.X509KeyPair(c.certificate, c.key)
				if err != nil {
					t.Fatal(err)
				}
				// Shown whether or not the server asks for its CA.
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
			name := fmt.Sprintf("test-%d", i)
			if err := mysql.RegisterTLSConfig(name, config); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("mysql", fmt.Sprintf("%s@tcp(%s:%d)/?tls=%s&timeout=5s", c.account, mysqltest.Host, m.Port, name))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if err := db.PingContext(t.Context()); (err == nil) != c.want {
				t.Errorf("%v", err)
			}
		})
	}
}

// A server takes settings while it runs, or says that it needs a restart.
func TestRealSettingsChange(t *testing.T) {
	m := newMember(t)
	m.Parameters = map[string]string{"max_connections": "60", "init_connect": "SET @x = 'it''s # \"no\" comment\\\\'", "sort_buffer_size": "1M"}
	m.Start()
	if got := m.Query("SELECT @@GLOBAL.init_connect"); got != m.Parameters["init_connect"] {
		t.Errorf("the file's value is read as %s", got)
	}
	running := settings.ComputeSettings(m.Settings())
	m.Parameters = map[string]string{
		"max_connections": "70", "sql_mode": "ANSI", "long_query_time": "0.5", "sort_buffer_size": "2M",
		"innodb_log_writer_threads": "OFF", "innodb_purge_threads": "2", "max_prepared_stmt_count": "many",
	}
	wanted := settings.ComputeSettings(m.Settings())
	applied, err := server.ApplySettings(t.Context(), m.DB, settings.PlanChanges(running, wanted))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(applied.Pending, []string{"innodb_purge_threads"}) || len(applied.Refused) != 1 || applied.Refused["max_prepared_stmt_count"] == "" || len(applied.Taken) != 6 {
		t.Errorf("%+v", applied)
	}
	for query, want := range map[string]string{
		"SELECT @@GLOBAL.max_connections": "70", "SELECT @@GLOBAL.long_query_time": "0.5", "SELECT @@GLOBAL.sort_buffer_size": "2097152",
		"SELECT @@GLOBAL.init_connect":                                "",
		"SELECT COUNT(*) FROM performance_schema.persisted_variables": "0",
	} {
		if got := m.Query(query); got != want {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
}

// MySQL checks a file without a server, and its complaints name the parameter.
func TestRealSettingsAreChecked(t *testing.T) {
	m := mysqltest.NewMembers(t, 1)[0]
	cases := []struct {
		name       string
		parameters map[string]string
		want       string
		adjusted   string
	}{
		{"none", nil, "", ""},
		{"a good one", map[string]string{"max_connections": "5"}, "", ""},
		{"an unknown name", map[string]string{"no_such_thing": "1"}, "no_such_thing: unknown system variable", ""},
		{"a value", map[string]string{"character_set_server": "klingon"}, "klingon", ""},
		{"no number", map[string]string{"max_connections": "abc"}, "max_connections: ", ""},
		{"no number that ends like one", map[string]string{"max_connections": "many"}, "", "max_connections"},
		{"too much", map[string]string{"max_connections": "9999999"}, "", "max_connections"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m.Parameters = c.parameters
			adjusted, err := m.Programs.CheckSettings(t.Context(), m.SettingsFile())
			var refusal *parameters.Refusal
			if (err != nil) != (c.want != "") || err != nil && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v", err)
			}
			if _, found := adjusted[c.adjusted]; found != (c.adjusted != "") || len(adjusted) > 1 {
				t.Errorf("%v", adjusted)
			}
		})
	}
}

// A server that cannot start says why.
func TestRealServerThatDoesNotStart(t *testing.T) {
	m := newMember(t)
	m.Parameters = map[string]string{"no_such_thing": "1"}
	mysqld, err := m.Programs.StartMysqld(m.Lock, m.SettingsFile(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	db, err := server.OpenSocket(settings.SocketPath(m.RunDir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := mysqld.AwaitReady(ctx, db); err == nil || !strings.Contains(err.Error(), "no_such_thing") {
		t.Errorf("%v", err)
	}
	if err := mysqld.StopAtOnce(); err != nil {
		t.Error(err)
	}
}
