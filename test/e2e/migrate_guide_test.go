//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/test/docs"
)

// migrateGuide follows the page on moving a PostgreSQL database, with the page's own
// commands: a load that ends at a missing role, its remedy, and a load that is complete.
// The source is another cluster, whose clients run in its pod.
func migrateGuide(t *testing.T) {
	needKind(t, postgres)
	namespace := newNamespace(t, "")
	source, c := createCluster(t, namespace, "old", 1), createCluster(t, namespace, orders, 1)
	source.waitReady()
	c.waitReady()
	source.writeRows("kept", 1000)
	source.runSQL(leading, "create role clerk")
	source.runSQL(leading, "alter table public.ledger owner to clerk")

	shell := newDocsShell(t, namespace)
	shell.readFrom(t, source)
	names := []string{
		"host=db.example.com", "host=/run/holdfast",
		"dbname=shop", "dbname=app", "database shop", "database app", "owner shop", "owner app",
	}
	if out := shell.runStep(t, "MigrateGuide", "roles", names...); !strings.Contains(out, "CREATE ROLE clerk;") {
		t.Errorf("the roles of the source are: %s", out)
	}
	load, err := docs.FindStep(docsRoot, "MigrateGuide", "copy")
	must(t, err, "find the step")
	if out, err := shell.runLine(t.Context(), strings.NewReplacer(names...).Replace(load.Text)); err == nil || !strings.Contains(out, `role "clerk" does not exist`) {
		t.Errorf("without a role, the load ends with %v: %s", err, out)
	}
	shell.runStep(t, "MigrateGuide", "empty", names...)
	c.runSQL(leading, "create role clerk")
	shell.runStep(t, "MigrateGuide", "copy", names...)
	shell.runStep(t, "MigrateGuide", "analyze", names...)
	if own, its := c.tableChecksums(leading), source.tableChecksums(leading); own != its || own == "" {
		t.Errorf("loaded are %q, and the source holds %q", own, its)
	}
	if owner := c.runSQL(leading, "select tableowner from pg_tables where tablename = 'ledger'"); owner != "clerk" {
		t.Errorf("the table belongs to %s", owner)
	}
}

// readFrom has PostgreSQL's clients of a shell run in the pod of a cluster of one member.
func (s *docsShell) readFrom(t *testing.T, source *cluster) {
	t.Helper()
	programs := t.TempDir()
	for _, program := range []string{"pg_dump", "pg_dumpall"} {
		text := fmt.Sprintf("#!/bin/sh\nexec kubectl exec -n %s %s -c postgres -- %s \"$@\"\n", source.namespace, source.podName(0), program)
		must(t, os.WriteFile(filepath.Join(programs, program), []byte(text), 0o700), "write "+program)
	}
	s.environment = append(s.environment, "PATH="+programs+":"+s.path(), "SOURCE=host=/run/holdfast user=postgres dbname=app")
}

// path is where a shell finds programs.
func (s *docsShell) path() (path string) {
	for _, variable := range s.environment {
		if value, is := strings.CutPrefix(variable, "PATH="); is {
			path = value
		}
	}
	return path
}
