//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// mysql is MySQL of the line that images can be built of.
var mysql = &kind{
	name: "MySQLCluster", prefix: "MySQL", engine: "mysql", line: "9.7",
	base:    func() string { return `version: "9.7", storage: {size: 1Gi}` },
	several: 3,
	entry:   "-rw", aside: "-ro",
	lease:     "-members",
	poison:    "MYSQL_HOME",
	memory:    "1Gi",
	saves:     true,
	alone:     true,
	reloaded:  `parameters: {max_connections: "123"}`,
	restarted: `parameters: {innodb_purge_threads: "2"}`,
	drifts: []drift{
		{"password", &corev1.Secret{}, "-app", mergePatch(`{"stringData":{"password":"guessed"}}`),
			[]trace{{path: ".data", operation: byUpdate}}},
	},
	refused: []badManifest{
		{"too many replicas", orders, `replicas: 11`, "spec.replicas"},
		{"an even number of replicas", orders, `replicas: 2`, "spec.replicas"},
		{"a version that is none", orders, `version: abc`, "spec.version"},
		{"a version that is too old", orders, `version: "8.0"`, "spec.version"},
		{"a version without long-term support", orders, `version: "9.6"`, "spec.version"},
		{"a version as a number", orders, `version: 9.7`, "spec.version"},
		{"a volume that is too small", orders, `storage: {size: 256Mi}`, "spec.storage.size"},
		{"a limit below what a server takes", orders, `resources: {limits: {memory: 512Mi}}`, "spec.resources"},
		{"a setting that is Holdfast's", orders, `parameters: {port: "3307"}`, "spec.parameters.port"},
		{"a setting of the group", orders, `parameters: {group_replication_consistency: EVENTUAL}`, "spec.parameters.group_replication_consistency"},
		{"a setting behind a modifier", orders, `parameters: {skip_networking: "ON"}`, "spec.parameters.skip_networking"},
		{"a setting with dashes", orders, `parameters: {max-connections: "123"}`, "spec.parameters"},
		{"a setting in capitals", orders, `parameters: {Max_Connections: "123"}`, "spec.parameters"},
		{"a database that exists already", orders, `bootstrap: {database: mysql}`, "spec.bootstrap.database"},
		{"an owner that exists already", orders, `bootstrap: {owner: root}`, "spec.bootstrap.owner"},
		{"a certificate for clients", orders, `tls: {certificateSecretRef: {name: own}}`, "spec.tls"},
	},
	mistakes: mysqlMistakes,
	empty:    func() v1alpha1.Cluster { return &v1alpha1.MySQLCluster{} },
	list:     func() client.ObjectList { return &v1alpha1.MySQLClusterList{} },
	database: mysqlDatabase{},
}

func mysqlMistakes() []mistake {
	return []mistake{
		{"older series", `version: "8.4"`, v1alpha1.ReasonDowngradeRefused, []string{"spec.version", `"9.7"`}},
		{"unknown parameter", `parameters: {no_such_setting: "1"}`, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "no_such_setting"}},
		{"bad value", `parameters: {max_connections: plenty}`, v1alpha1.ReasonInvalidParameter, []string{"spec.parameters", "max_connections"}},
		{"other first database", `bootstrap: {database: shop}`, v1alpha1.ReasonBootstrapChanged, []string{"spec.bootstrap", `"shop"`}},
		{"impossible image", `version: "9.7.99"`, v1alpha1.ReasonImageUnavailable, []string{"spec.version", "9.7.99"}},
	}
}

type mysqlDatabase struct{}

func (mysqlDatabase) keepValue(c *subject, value string) {
	c.t.Helper()
	c.runMySQL(leading, "create table if not exists app.kept (id int primary key, value text); replace into app.kept values (1, '"+value+"')")
}

func (mysqlDatabase) keptValue(c *subject) string {
	c.t.Helper()
	if c.runMySQL(leading, "select count(*) from information_schema.tables where table_schema = 'app' and table_name = 'kept'") == "0" {
		return ""
	}
	return c.runMySQL(leading, "select value from app.kept")
}

func (mysqlDatabase) checkServes(t *testing.T, c *subject) string {
	t.Helper()
	app := newClientOf(t, mysqlImage(t))
	app.writeFiles(t, connection, c.readSecret("-app"))
	var out string
	// A Service that was just made may take the nodes a moment.
	eventually(t, serviceTimeout, "an application reads", func(ctx context.Context) (err error) {
		out, err = runCommand(ctx, app.namespace, app.name, "", "sh", "-c", mysqlClient+`query "select value from kept"`)
		return err
	})
	return out
}

// otherImage is of another database: of MySQL there is one version.
func (mysqlDatabase) otherImage(t *testing.T) string {
	t.Helper()
	return clientImage(t)
}

func (mysqlDatabase) applicationImage(t *testing.T) string {
	t.Helper()
	return mysqlImage(t)
}

// mysqlImage has the newest client of the line.
func mysqlImage(t *testing.T) string {
	t.Helper()
	have := needImages(t, mysql.engine, mysql.line, 1)
	return imageRef(t, mysql.engine, have[len(have)-1])
}

func (mysqlDatabase) inForce(ctx context.Context, obj v1alpha1.Cluster) error {
	declared, ok := obj.(*v1alpha1.MySQLCluster)
	if !ok {
		return fmt.Errorf("%T is another kind", obj)
	}
	primary := declared.Status.Primary
	var replicas []string
	var errs []error
	for n := range declared.Spec.DesiredReplicas() {
		pod := fmt.Sprintf("%s-%d", declared.Name, n)
		readOnly := "0"
		if pod != primary {
			readOnly, replicas = "1", append(replicas, pod)
		}
		errs = append(errs, checkMySQLSettings(ctx, declared, pod, readOnly))
	}
	online, err := listOnline(ctx, declared.Namespace, primary)
	if want := slices.Sorted(slices.Values(append(replicas, primary))); err == nil && !slices.Equal(online, want) {
		err = fmt.Errorf("%s sees %v online, want %v", primary, online, want)
	}
	errs = append(errs, err)
	for service, want := range map[string][]string{"-rw": {primary}, "-ro": replicas} {
		have, err := podsBehind(ctx, declared.Namespace, declared.Name+service)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("behind %s: %v, want %v", service, have, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkMySQLSettings compares what a member runs with with the spec.
func checkMySQLSettings(ctx context.Context, declared *v1alpha1.MySQLCluster, pod, readOnly string) error {
	query, want := "select @@global.super_read_only", readOnly
	for _, name := range slices.Sorted(maps.Keys(declared.Spec.Parameters)) {
		query += ", @@global." + name
		want += "\t" + declared.Spec.Parameters[name]
	}
	have, err := queryMySQL(ctx, declared.Namespace, pod, query)
	if err == nil && have != want {
		err = fmt.Errorf("%s: %s is %q, want %q", pod, query, have, want)
	}
	return err
}

// listOnline are the pods that a member sees online in its group, in order.
func listOnline(ctx context.Context, namespace, pod string) ([]string, error) {
	out, err := queryMySQL(ctx, namespace, pod, "select substring_index(member_host, '.', 1) from performance_schema.replication_group_members where member_state = 'ONLINE' order by 1")
	return strings.Fields(out), err
}

// awaitUnited: every member sees the same group, with one primary, which is the one that
// Services lead to. Each has the same content.
func (mysqlDatabase) awaitUnited(c *subject, members int) {
	c.t.Helper()
	primary := c.podName(leading)
	want := []string{}
	for n := range members {
		want = append(want, fmt.Sprintf("%s\tONLINE", c.podName(n)))
	}
	const view = `select substring_index(member_host, '.', 1), member_state from performance_schema.replication_group_members order by member_host`
	const leads = `select substring_index(member_host, '.', 1) from performance_schema.replication_group_members where member_role = 'PRIMARY'`
	for n := range members {
		eventually(c.t, serviceTimeout, c.podName(n)+" sees the group", func(ctx context.Context) error {
			have, err := queryMySQL(ctx, c.namespace, c.podName(n), view+"; "+leads)
			if all := strings.Join(append(slices.Clone(want), primary), "\n"); err == nil && have != all {
				err = fmt.Errorf("it sees\n%s\nwant\n%s", have, all)
			}
			return err
		})
	}
	c.checkSameContent(members)
}

// mysqlInserts inserts one row after the other, each over a new connection. Each one starts
// a program, so it rests in between.
const mysqlInserts = mysqlClient + `
n=0
while [ ! -e ` + until + ` ]; do
	n=$((n+1))
	query "insert into written values ($n)" && echo "ack $n $(date +%s%3N)"
	sleep 0.5
done`

func (mysqlDatabase) applicationCommand(c *subject, app *clientPod) []string {
	c.t.Helper()
	app.writeFiles(c.t, connection, c.readSecret("-app"))
	eventually(c.t, serviceTimeout, "the application makes its table", func(ctx context.Context) error {
		_, err := runCommand(ctx, app.namespace, app.name, "", "sh", "-c", mysqlClient+`query "create table if not exists written (n int primary key)"`)
		return err
	})
	return []string{"sh", "-c", mysqlInserts}
}

func (mysqlDatabase) writtenNumbers(c *subject, ordinal int) []int {
	c.t.Helper()
	c.awaitApplied(ordinal)
	return readNumbers(c.t, c.runMySQL(ordinal, "select n from app.written"))
}
