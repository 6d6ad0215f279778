//go:build postgres

package accounts

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PostgreSQL computes the same verifier of every password: clients with libpq
// normalize what a person types as it does.
func TestRealVerifiers(t *testing.T) {
	conn := startServer(t)
	passwords := []string{
		"s3cret", "a'b\\c", "tab\tand\x01control", "I\u00adX", "\u00ad", "\u200b", "a\u200bb", "a\u200cb", "a\u00a0b", "a\u3000b",
		"\u00e9", "e\u0301", "\u00aa", "\u2168", "\ufb01sh", "\uff50\uff57", "\u2460", "\u0627\u0031", "\u0627\u0031\u0628", "\u05d0a\u05d0", "\ufb1d",
		"\u0340", "\u0341", "\u06dd", "\u200e", "\ue000", "\ufffd", "\ufdd0", "\U0001d400", "\U0001f600", "\U0001f130", "\u0221", "\U000e0001", "\uac00", "\u1100\u1161", "\u212b", "\u1e9b\u0323",
		"\u8c48", "\uf900", "\u017f", "\u2126", "\u0132", "\ufe00x", "\ufeffx", "\u00b5", "\u2163 and \u00ad", "\u1680", "\u205fx", "a\u0300\u0323b",
	}
	for _, password := range passwords {
		var verifier string
		if _, err := conn.Exec(t.Context(), "alter role app password '"+strings.ReplaceAll(password, "'", "''")+"'"); err != nil {
			t.Fatalf("%+q: %v", password, err)
		}
		if err := conn.QueryRow(t.Context(), "select rolpassword from pg_authid where rolname = 'app'").Scan(&verifier); err != nil {
			t.Fatal(err)
		}
		if !verifyPassword(verifier, password) {
			t.Errorf("PostgreSQL has another verifier of %+q, which is normalized to %+q", password, normalizePassword(password))
		}
	}
}

// startServer starts a server with the role app.
func startServer(t *testing.T) *pgx.Conn {
	t.Helper()
	data, socket := filepath.Join(t.TempDir(), "data"), t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	run("pg_ctl", "-D", data, "-w", "-l", filepath.Join(socket, "log"), "-o", "-c fsync=off -c listen_addresses= -c unix_socket_directories="+socket, "start")
	t.Cleanup(func() { run("pg_ctl", "-D", data, "-m", "immediate", "stop") })
	conn, err := pgx.Connect(t.Context(), "host="+socket+" user=postgres dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "create role app login"); err != nil {
		t.Fatal(err)
	}
	return conn
}
