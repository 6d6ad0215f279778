package importer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
)

func TestServerHasThePasswordInItsEnvironmentAlone(t *testing.T) {
	s := Server{Hosts: []string{"a", "b"}, Port: 5432, Database: "d", User: "u", Password: "p'\\", TLSMode: "verify-full"}
	env := strings.Join(s.environment(), "\n")
	for _, want := range []string{"PGHOST=a,b", "PGPORT=5432,5432", `PGPASSWORD=p'\`, "PGSSLMODE=verify-full"} {
		if !strings.Contains(env, want) {
			t.Errorf("%s is not in %s", want, env)
		}
	}
	if strings.Contains(env, "PGOPTIONS") {
		t.Error("poolers refuse options of a session, and a source may be behind one")
	}
	i := Importer{Programs: "/bin"}
	if p := i.command(t.Context(), s.environment(), "pg_dump", append([]string{keepalives}, dumpArguments...)...); strings.Contains(strings.Join(p.cmd.Args, " "), s.Password) {
		t.Errorf("%v", p.cmd.Args)
	}
}

// A pooler in transaction mode gives the session to other clients once the transaction has
// ended.
func TestSettingsOfTheSourceEndWithTheirTransaction(t *testing.T) {
	for statement := range strings.SplitSeq(settingsOfSource, ";") {
		statement = strings.TrimSpace(statement)
		if !strings.HasPrefix(statement, "set local ") && !strings.HasPrefix(statement, "select pg_catalog.set_config(name, '0', true)") {
			t.Errorf("%s outlives the transaction", statement)
		}
	}
}

// mount writes what the operator mounts into the pod of an import.
func mount(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, side := range []string{"source", "target"} {
		if err := os.Mkdir(filepath.Join(dir, side), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadServers(t *testing.T) {
	task := agentapi.ImportTask{Source: agentapi.ImportServer{Host: "old", Port: 5433, Database: "shop", User: "reader", TLSMode: "verify-full"},
		Hosts: []string{"orders-0", "orders-1"}, Port: 5432, Files: map[string]string{"password": "key password of Secret old-login, which spec.bootstrap.import.passwordSecretRef names,"}}
	target := map[string]string{"target/username": "app", "target/password": "secret", "target/dbname": "shop", "target/ca.crt": "ca"}
	_, _, err := ReadServers(task, mount(t, target), t.TempDir())
	if !backup.InVain(err) || !strings.Contains(err.Error(), "key password of Secret old-login, which spec.bootstrap.import.passwordSecretRef names, is missing: add the key") {
		t.Errorf("%v", err)
	}
	target["source/password"], target["source/ca.crt"], target["source/tls.crt"], target["source/tls.key"] = "of the source\n", "ca", "crt", "key"
	dir, scratch := mount(t, target), t.TempDir()
	from, to, err := ReadServers(task, dir, scratch)
	if err != nil {
		t.Fatal(err)
	}
	if from.Password != "of the source" || from.RootCert != filepath.Join(dir, "source", "ca.crt") || from.Writable {
		t.Errorf("%+v", from)
	}
	if info, err := os.Stat(from.Key); err != nil || info.Mode().Perm() != 0o600 || filepath.Dir(from.Key) != scratch {
		t.Errorf("libpq refuses the key: %v, %v", info, err)
	}
	if to.User != "app" || to.Database != "shop" || !to.Writable || to.TLSMode != "verify-full" || to.RootCert != filepath.Join(dir, "target", "ca.crt") {
		t.Errorf("%+v", to)
	}
	each := to.split()
	if len(each) != 2 || !slices.Equal(each[1].Hosts, []string{"orders-1"}) || each[1].Writable || len(to.Hosts) != 2 {
		t.Errorf("%+v", each)
	}
}

func TestVersionsOfSourcesAreRefused(t *testing.T) {
	for _, c := range []struct {
		source, target int
		refused        bool
	}{{150018, 170004, false}, {170009, 170004, false}, {180000, 170004, true}, {90500, 170004, false}, {90426, 170004, true}} {
		err, says := refuseVersion(c.source, c.target, "of the source", "17.4"), "declare a cluster of major version 18 or later"
		if c.source < c.target {
			says = "9.5 is the oldest"
		}
		if backup.InVain(err) != c.refused || c.refused && !strings.Contains(err.Error(), says) {
			t.Errorf("%d into %d: %v", c.source, c.target, err)
		}
	}
}
