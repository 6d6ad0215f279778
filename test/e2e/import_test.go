//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// importTimeout is for a database of a gigabyte to be copied on a busy machine.
const importTimeout = 20 * time.Minute

// sourcePassword of the role that imports log in as.
const sourcePassword = "of the source"

// TestPostgresImport fills a cluster from an older major, after the password was wrong.
func TestPostgresImport(t *testing.T) {
	t.Parallel()
	importsFrom(t, 20_000, 1, func(*cluster) {})
}

// importsFrom a source with rows of about 235 bytes, and returns what the status says of it.
// Disturb is called while an import that can succeed is under way.
func importsFrom(t *testing.T, rows int, replicas int32, disturb func(*cluster)) v1alpha1.ImportResult {
	t.Helper()
	needKind(t, postgres)
	have := needImages(t, "postgres", "15", 1)
	source := startSource(t, imageRef(t, "postgres", have[0]))
	source.query(t, "create database shop")
	source.queryIn(t, "shop", fmt.Sprintf(`create extension citext; create table customers (id bigint generated always as identity primary key, name citext);
		create table orders (id bigserial primary key, customer bigint not null references customers, pad text);
		insert into customers (name) select 'c' || g from generate_series(1, 100) g;
		insert into orders (customer, pad) select 1 + g %% 100, repeat(md5(g::text), 7) from generate_series(1, %d) g;
		create materialized view sums as select customer, count(*) from orders group by 1;
		select count(lo_from_bytea(0, 'large')) from generate_series(1, 10)`, rows))

	c := followCluster(t, newNamespace(t, ""), orders)
	giveLogin(t, c.namespace, "wrong")
	c.createCluster(replicas, func(pg *v1alpha1.PostgresCluster) {
		pg.Spec.Storage.Size = resource.MustParse("4Gi")
		pg.Spec.Bootstrap.Import = &v1alpha1.ImportSource{
			Host: source.address(t), Database: "shop", User: "postgres", TLS: &v1alpha1.ImportTLS{Mode: v1alpha1.ImportTLSDisable},
			PasswordSecretRef: &v1alpha1.ImportPassword{SecretReference: v1alpha1.SecretReference{Name: "old-login"}},
		}
	})
	c.waitStalled(v1alpha1.ReasonImportFailed, "has left nothing half done", "password authentication failed")
	if left := c.runSQL(0, "select count(*) from pg_class where relnamespace = 'public'::regnamespace"); left != "0" {
		t.Errorf("%s objects are left of an import that failed", left)
	}
	eventually(t, readyTimeout, "all members have pods", func(context.Context) error {
		if got := len(c.listPods()); got != int(replicas) {
			return fmt.Errorf("%d of %d", got, replicas)
		}
		return nil
	})
	c.awaitCaughtUp(c.primaryPod().Name)
	var login corev1.Secret
	c.readObject(&login, "old-login")
	login.Data = map[string][]byte{"password": []byte(sourcePassword)}
	must(t, env.client.Update(t.Context(), &login), "correct the password")

	began := time.Now()
	disturb(c)
	pg := c.waitFor(importTimeout, "the import is complete", func(pg *v1alpha1.PostgresCluster) error {
		if !pg.Status.Import.Done() {
			return fmt.Errorf("%+v", pg.Status.Import)
		}
		return nil
	})
	t.Logf("imported %+v in %s", *pg.Status.Import.Result, time.Since(began).Round(time.Second))
	c.waitReady()
	copied := func(query string) string {
		primary := c.primaryPod().Name
		out, err := runLocalQuery(t.Context(), c.namespace, primary, "app", query)
		must(t, err, primary+": "+query)
		return out
	}
	for _, query := range []string{
		"select count(*) || ':' || sum(hashtextextended(t::text, 0)) from orders t", "select count(*) || ':' || sum(hashtextextended(t::text, 0)) from customers t",
		"select count(*) || ':' || sum(count) from sums", "select last_value from orders_id_seq", "select count(*) || ':' || min(lo_get(oid)::text) from pg_largeobject_metadata",
	} {
		if want, got := source.queryIn(t, "shop", query), copied(query); want != got {
			t.Errorf("%s: %s, in the source %s", query, got, want)
		}
	}
	if owner := copied("select tableowner from pg_tables where tablename = 'orders'"); owner != "app" {
		t.Errorf("%s owns the tables", owner)
	}
	if id := newClient(t).mustPsql(t, c.connectionURI(), "insert into orders (customer, pad) values (1, 'new') returning id"); id != fmt.Sprint(rows+1) {
		t.Errorf("an application's first row is %s", id)
	}
	c.editCluster(func(pg *v1alpha1.PostgresCluster) { pg.Spec.Bootstrap.Import = nil })
	c.waitReady()
	return *pg.Status.Import.Result
}

// sourcePod is a PostgreSQL server that is no cluster's.
type sourcePod struct{ *clientPod }

func startSource(t *testing.T, image string) sourcePod {
	t.Helper()
	pod := clientPodOf(newNamespace(t, "old-"), image)
	ctr := &pod.Spec.Containers[0]
	ctr.Command = []string{"sh", "-c", `PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
		echo "$SOURCE_PASSWORD" >/tmp/password && initdb -D /tmp/data -U postgres --pwfile=/tmp/password --auth-host=scram-sha-256 --auth-local=trust &&
		echo 'host all all all scram-sha-256' >>/tmp/data/pg_hba.conf &&
		exec postgres -D /tmp/data -c listen_addresses='*' -c unix_socket_directories=/tmp -c max_wal_size=2GB`}
	ctr.Env = []corev1.EnvVar{{Name: "SOURCE_PASSWORD", Value: sourcePassword}}
	ctr.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "PATH=$PATH:$(echo /usr/lib/postgresql/*/bin) pg_isready -h /tmp"}}}, PeriodSeconds: 1}
	return sourcePod{startClient(t, pod)}
}

func (s sourcePod) address(t *testing.T) string {
	t.Helper()
	pod, err := env.kube.CoreV1().Pods(s.namespace).Get(t.Context(), s.name, metav1.GetOptions{})
	must(t, err, "find the source")
	return pod.Status.PodIP
}

func (s sourcePod) query(t *testing.T, query string) string { return s.queryIn(t, "postgres", query) }

func (s sourcePod) queryIn(t *testing.T, database, query string) string {
	t.Helper()
	out, err := runWithin(context.WithoutCancel(t.Context()), importTimeout, s.namespace, s.name, query,
		append([]string{"psql", "-h", "/tmp", "-U", "postgres", "-d", database}, plainOutput...)...)
	must(t, err, strings.SplitN(query, "\n", 2)[0])
	return out
}

func giveLogin(t *testing.T, namespace, password string) {
	t.Helper()
	must(t, env.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "old-login"}, StringData: map[string]string{"password": password},
	}), "create the login")
}
