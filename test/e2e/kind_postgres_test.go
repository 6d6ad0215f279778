//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// postgres is PostgreSQL, as the quickstart runs it.
var postgres = &kind{
	name: "PostgresCluster", engine: "postgres", line: "17",
	base:    func() string { return `version: "17", storage: {size: 1Gi}` },
	several: 2,
	entry:   "-rw", aside: "-ro",
	lease:     "-primary",
	poison:    "PGOPTIONS",
	memory:    "512Mi",
	saves:     true,
	reloaded:  `parameters: {work_mem: 7MB}`,
	restarted: `parameters: {max_connections: "123"}`,
	drifts: []drift{
		{"password", &corev1.Secret{}, "-app", mergePatch(`{"stringData":{"password":"guessed"}}`),
			[]trace{{path: ".data", operation: byUpdate}}},
	},
	refused: []badManifest{
		{"too many replicas", orders, `replicas: 10`, "spec.replicas"},
		{"a version that is none", orders, `version: abc`, "spec.version"},
		{"a version that is too old", orders, `version: "9.6"`, "spec.version"},
		{"a version as a number", orders, `version: 17.4`, "spec.version"},
		{"a setting that is Holdfast's", orders, `parameters: {port: "5433"}`, "spec.parameters"},
		{"a setting in capitals", orders, `parameters: {Work_Mem: 1MB}`, "spec.parameters"},
		{"a quorum of all members", orders, `synchronous: {mode: Quorum, number: 8}`, "spec.synchronous.number"},
		{"a Lease that is too short", orders, `failover: {leaseDuration: 5s}`, "spec.failover.leaseDuration"},
		{"an owner that exists already", orders, `bootstrap: {owner: postgres}`, "spec.bootstrap.owner"},
	},
	mistakes: postgresMistakes,
	empty:    func() v1alpha1.Cluster { return &v1alpha1.PostgresCluster{} },
	list:     func() client.ObjectList { return &v1alpha1.PostgresClusterList{} },
	database: postgresDatabase{},
}

func postgresMistakes() []mistake {
	return []mistake{
		{"downgrade", `version: "15"`, v1alpha1.ReasonDowngradeRefused, []string{"spec.version", `"17"`}},
		{"major upgrade", `version: "18"`, v1alpha1.ReasonMajorUpgrade, []string{"spec.version", `"17"`}},
		{"unknown parameter", `parameters: {no_such_setting: "1"}`, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "no_such_setting"}},
		{"bad value", `parameters: {work_mem: plenty}`, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "work_mem"}},
		{"impossible image", `version: "17.99"`, v1alpha1.ReasonImageUnavailable, []string{"spec.version", "17.99"}},
	}
}

type postgresDatabase struct{}

func (postgresDatabase) keepValue(c *subject, value string) {
	c.t.Helper()
	(&cluster{c}).runSQL(leading, "set role app; create table if not exists kept (value text); truncate kept; insert into kept values ('"+value+"')")
}

func (postgresDatabase) keptValue(c *subject) string {
	c.t.Helper()
	pg := &cluster{c}
	if pg.runSQL(leading, "select count(*) from pg_tables where tablename = 'kept'") == "0" {
		return ""
	}
	return pg.runSQL(leading, "select value from kept")
}

func (postgresDatabase) checkServes(t *testing.T, c *subject) string {
	t.Helper()
	return newClient(t).mustPsql(t, (&cluster{c.withTest(t)}).connectionURI(), "select value from kept")
}

// otherImage is of another major version: it must not even start on the data.
func (postgresDatabase) otherImage(t *testing.T) string {
	t.Helper()
	return imageRef(t, "postgres", needImages(t, "postgres", "18", 1)[0])
}

func (postgresDatabase) inForce(ctx context.Context, c v1alpha1.Cluster) error {
	obj := asPostgres(c)
	var replicas []string
	var errs []error
	for n := range obj.Spec.DesiredReplicas() {
		pod := fmt.Sprintf("%s-%d", obj.Name, n)
		if pod != obj.Status.Primary {
			replicas = append(replicas, pod)
		}
		query, want := "select pg_is_in_recovery()", fmt.Sprint(pod != obj.Status.Primary)[:1]
		for _, name := range slices.Sorted(maps.Keys(obj.Spec.Parameters)) {
			query += fmt.Sprintf(", current_setting('%s')", name)
			want += "|" + obj.Spec.Parameters[name]
		}
		query += ", (select count(*) from pg_settings where pending_restart)"
		have, err := runLocalQuery(ctx, obj.Namespace, pod, "postgres", query)
		if err == nil && have != want+"|0" {
			err = fmt.Errorf("%s has %s, want %s", pod, have, want+"|0")
		}
		errs = append(errs, err)
	}
	for service, want := range map[string][]string{"-rw": {obj.Status.Primary}, "-ro": replicas} {
		have, err := podsBehind(ctx, obj.Namespace, obj.Name+service)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("behind %s: %v, want %v", service, have, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// awaitUnited: one primary, which sends to all others over TLS.
func (postgresDatabase) awaitUnited(c *subject, members int) {
	c.t.Helper()
	pg := &cluster{c}
	primaries := 0
	for n := range members {
		if pg.runSQL(n, "select pg_is_in_recovery()") == "f" {
			primaries++
		}
	}
	if primaries != 1 {
		c.t.Errorf("%d of %d members are primaries", primaries, members)
	}
	var replicas []string
	primary := c.findLeading()
	for n := range members {
		if n != primary {
			replicas = append(replicas, c.podName(n))
		}
	}
	have := strings.Fields(pg.runSQL(leading, "select split_part(application_name, '_', 1) from pg_stat_replication order by 1"))
	if !slices.Equal(have, replicas) {
		c.t.Errorf("the primary sends to %v, want %v", have, replicas)
	}
	if n := pg.runSQL(leading, streamingOverTLS); n != strconv.Itoa(len(replicas)) {
		c.t.Errorf("%s replicas stream over TLS, want %d", n, len(replicas))
	}
}

// streamingOverTLS counts replicas that follow over an encrypted connection.
const streamingOverTLS = `select count(*) from pg_stat_replication r join pg_stat_ssl s using (pid)
	where r.state = 'streaming' and s.ssl`

// inserts one row after the other, each over a new connection, and reports the
// database's time before and after.
const inserts = `
uri=$(cat /tmp/uri)
n=0
clock() { echo "select '$1 $n ' || (extract(epoch from clock_timestamp()) * 1000000)::bigint"; }
while [ ! -e ` + until + ` ]; do
	n=$((n+1))
	PGCONNECT_TIMEOUT=3 psql "$uri" -XAtq -v ON_ERROR_STOP=1 \
		-c "$(clock begun)" -c "insert into written values ($n)" -c "$(clock ended)" 2>/dev/null && echo "ack $n $(date +%s%3N)"
	sleep 0.5
done`

func (postgresDatabase) applicationImage(t *testing.T) string {
	t.Helper()
	return clientImage(t)
}

func (postgresDatabase) applicationCommand(c *subject, app *clientPod) []string {
	c.t.Helper()
	uri := (&cluster{c}).connectionURI()
	app.mustPsql(c.t, uri, "create table written (id int primary key)")
	app.writeFile(c.t, "/tmp/uri", uri)
	return []string{"bash", "-c", inserts}
}

func (postgresDatabase) writtenNumbers(c *subject, ordinal int) []int {
	c.t.Helper()
	return (&cluster{c}).selectRows(ordinal, "true")
}

// selectRows returns rows of the application's that a member has, of those for which a condition
// holds.
func (c *cluster) selectRows(ordinal int, condition string) []int {
	c.t.Helper()
	return readNumbers(c.t, c.runSQL(ordinal, "select id from written where "+condition))
}
