//go:build soak

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/test/docs"
)

// TestSoakMigrateMySQL follows the page on moving a MySQL database, with the page's own
// commands. The source is another cluster, whose clients run in its pod. It has a table
// without a primary key, which the page's query finds, and all that a dump takes: tables, a
// view, a routine, a trigger and an event of an account that the new cluster lacks at first.
func TestSoakMigrateMySQL(t *testing.T) {
	needKind(t, mysql)
	namespace := newNamespace(t, "")
	const bootstrap = "bootstrap: {database: shop, owner: shop}"
	source := createSubject(t, mysql, namespace, "old", 1, bootstrap)
	c := createSubject(t, mysql, namespace, orders, 3, bootstrap)
	source.waitReady()
	c.waitReady()
	for _, statement := range []string{
		"create user clerk; grant all on shop.* to clerk",
		"create table shop.items (id int primary key, name varchar(40), price decimal(10,2), photo blob, seen timestamp(6) default now(6))",
		"insert into shop.items (id, name, price, photo) with recursive n (i) as (select 1 union all select i + 1 from n where i < 1000) select i, concat('Käse ', i), i / 7, random_bytes(64) from n",
		"create table shop.parts (id int primary key auto_increment, item int not null, foreign key (item) references shop.items (id))",
		"insert into shop.parts (item) select id from shop.items where id % 3 = 0",
		"create definer = clerk view shop.cheap as select id, name from shop.items where price < 10",
		"create definer = clerk procedure shop.total() select sum(price) from shop.items",
		"create definer = clerk trigger shop.named before insert on shop.items for each row set new.name = upper(new.name)",
		"create definer = clerk event shop.purge on schedule every 1 year do delete from shop.items where id < 0",
	} {
		source.runMySQL(0, statement)
	}
	shell := newDocsShell(t, namespace)
	login := "--socket=" + agentapi.RunDir + "/mysqld.sock --user=holdfast"
	shell.wrapPrograms(t, source, "mysql", "mysql", "mysqldump")
	shell.environment = append(shell.environment, "SOURCE="+login)
	names := []string{"--host=db.example.com --user=root --password", login}

	source.runMySQL(0, "set sql_require_primary_key = off; create table shop.keyless (a int)")
	if out := shell.runStep(t, "TestSoakMigrateMySQL", "keys", names...); !strings.Contains(out, "keyless") || strings.Contains(out, "items") {
		t.Errorf("tables without a primary key are: %s", out)
	}
	source.runMySQL(0, "drop table shop.keyless")

	c.runMySQL(leading, "create user clerk; grant all on shop.* to clerk")
	shell.runStep(t, "TestSoakMigrateMySQL", "copy")
	checkCopied(t, source, c)
	c.runMySQL(leading, "drop database shop; create database shop") // as after a copy that failed
	shell.runStep(t, "TestSoakMigrateMySQL", "copy")
	checkCopied(t, source, c)
	if grants := c.runMySQL(leading, "show grants for shop"); !strings.Contains(grants, "`shop`.*") {
		t.Errorf("the owner may: %s", grants)
	}
}

// checkCopied compares all members of a cluster with the source.
func checkCopied(t *testing.T, source, c *subject) {
	t.Helper()
	want, err := readMySQLContent(t.Context(), source.namespace, source.podName(0))
	must(t, err, "read the source")
	if len(want) != 2 {
		t.Errorf("the source has %v", want)
	}
	for n := range 3 {
		c.awaitApplied(n)
		have, err := readMySQLContent(t.Context(), c.namespace, c.podName(n))
		must(t, err, "read "+c.podName(n))
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s differs from the source (-source +copy):\n%s", c.podName(n), diff)
		}
	}
	for _, query := range []string{
		"call shop.total()", "select count(*), min(name) from shop.cheap",
		"select event_name, definer from information_schema.events where event_schema = 'shop'",
		"select trigger_name, definer from information_schema.triggers where trigger_schema = 'shop'",
	} {
		if have, want := c.runMySQL(leading, query), source.runMySQL(0, query); have != want || want == "" {
			t.Errorf("%s: %q, at the source %q", query, have, want)
		}
	}
}

// wrapPrograms has programs of a shell run in the pod of a cluster of one member.
func (s *docsShell) wrapPrograms(t *testing.T, source *subject, container string, programs ...string) {
	t.Helper()
	folder := t.TempDir()
	for _, program := range programs {
		text := fmt.Sprintf("#!/bin/sh\nexec kubectl exec -i -n %s %s -c %s -- %s \"$@\"\n", source.namespace, source.podName(0), container, program)
		must(t, os.WriteFile(filepath.Join(folder, program), []byte(text), 0o700), "write "+program)
	}
	s.environment = append(s.environment, "PATH="+folder+":"+s.path())
}

// TestSoakMigrateEtcd follows the page on moving the keys of an etcd, with the page's own
// commands: keys that were there, and changes while they are copied. The source is
// another cluster, which is reached through a forwarded port as well.
func TestSoakMigrateEtcd(t *testing.T) {
	needKind(t, etcd)
	namespace := newNamespace(t, "")
	source := createSubject(t, etcd, namespace, "old", 1)
	c := createSubject(t, etcd, namespace, "config", 3)
	source.waitReady()
	c.waitReady()
	const keys = 100
	for n := range keys {
		source.runEtcdctl(0, "put", fmt.Sprintf("/shop/%03d", n), fmt.Sprintf("Wert\n%d", n))
	}
	shell := newDocsShell(t, namespace)
	programs, err := exec.CommandContext(t.Context(), filepath.Join(docsRoot, "bin", "cluster"), "etcd", etcd.line).Output()
	must(t, err, "find etcdctl")
	shell.environment = append(shell.environment, "PATH="+strings.TrimSpace(string(programs))+":"+shell.path())
	from, to := freePort(t), freePort(t)
	names := []string{
		"config-client 2379", "config-client " + to + ":2379", "\n  localhost:2379", "\n  localhost:" + to,
		"--endpoints=https://etcd.example.com:2379", "--endpoints=https://localhost:" + from + " --cacert=old-tls/ca.crt --cert=old-tls/tls.crt --key=old-tls/tls.key",
	}
	shell.runStep(t, "TestSoakMigrateEtcd", "certificate")
	out, err := shell.runLine(t.Context(), "kubectl holdfast credentials old -n shop --directory ./old-tls")
	must(t, err, "write the source's certificate: "+out)
	shell.start(t, "kubectl -n shop port-forward service/old-client "+from+":2379", "Forwarding from")
	shell.startStep(t, "TestSoakMigrateEtcd", "forward", "Forwarding from", names...)
	stop := shell.startStep(t, "TestSoakMigrateEtcd", "copy", "", names...)

	counts := regexp.MustCompile(`"Count" : (\d+)`)
	awaitEqual := func(what string, want int) {
		t.Helper()
		eventually(t, readyTimeout, what, func(context.Context) error {
			printed := shell.runStep(t, "TestSoakMigrateEtcd", "compare", names...)
			found := counts.FindAllStringSubmatch(printed, -1)
			if len(found) != 2 || found[0][1] != fmt.Sprint(want) || found[1][1] != found[0][1] {
				return fmt.Errorf("it prints %s", printed)
			}
			return nil
		})
	}
	awaitEqual("all keys are copied", keys)
	source.runEtcdctl(0, "put", "/shop/new", "x")
	source.runEtcdctl(0, "put", "/shop/000", "changed")
	source.runEtcdctl(0, "del", "/shop/001")
	source.runEtcdctl(0, "del", "/shop/002")
	awaitEqual("changes follow", keys-1)
	stop()
	list := []string{"get", "--prefix", "/shop/"}
	if have, want := c.runEtcdctl(0, list...), source.runEtcdctl(0, list...); have != want || !strings.Contains(want, "changed") {
		t.Errorf("copied are %s, and the source holds %s", have, want)
	}
}

// startStep starts the block that the pages mark with a test and a step, and waits for a
// word that it prints; at once for none. It runs until it is stopped.
func (s docsShell) startStep(t *testing.T, test, step, word string, names ...string) (stop func()) {
	t.Helper()
	b, err := docs.FindStep(docsRoot, test, step)
	must(t, err, "find the step")
	return s.start(t, strings.NewReplacer(names...).Replace(b.Text), word)
}

func (s docsShell) start(t *testing.T, line, word string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // it is stopped by a cleanup
	cmd := s.command(ctx, "exec "+strings.TrimSpace(line))
	cmd.WaitDelay = 5 * time.Second
	printed := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = printed, printed
	must(t, cmd.Start(), line)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		select {
		case err := <-ended:
			t.Errorf("%s: it ended by itself: %v\n%s", line, err, printed)
		default:
			cancel()
			if err := <-ended; err == nil {
				t.Logf("%s: it ended as it was stopped", line)
			}
		}
		cancel()
	}
	t.Cleanup(stop)
	eventually(t, readyTimeout, line, func(context.Context) error {
		if !strings.Contains(printed.String(), word) {
			return errors.New(printed.String())
		}
		return nil
	})
	return stop
}

// lockedBuffer is what a program has printed so far.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// freePort is a port of this machine that no process has.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	must(t, err, "find a free port")
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err, "read the port")
	return port
}
