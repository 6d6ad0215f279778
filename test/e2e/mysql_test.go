//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/test/writehistory"
)

// queryMySQL asks a member's server, as its agent does. It returns a line for each row,
// with tabs between the columns.
func queryMySQL(ctx context.Context, namespace, pod, query string) (string, error) {
	return runCommand(inContainer(ctx, mysql.engine), namespace, pod, "", "mysql", "-S", agentapi.RunDir+"/mysqld.sock", "-u", "holdfast", "-N", "-e", query)
}

// runMySQL is queryMySQL, where a failure ends the test.
func (c *subject) runMySQL(ordinal int, query string) string {
	c.t.Helper()
	out, err := queryMySQL(c.t.Context(), c.namespace, c.podName(ordinal), query)
	must(c.t, err, c.podName(ordinal)+": "+query)
	return out
}

// mysqlClient defines query for a shell in an application's pod: it knows nothing but the
// connection Secret. A server that stands still does not hold it.
const mysqlClient = `
query() {
	MYSQL_PWD="$(cat ` + connection + `/password)" timeout 10 mysql --host="$(cat ` + connection + `/host)" --user="$(cat ` + connection + `/username)" \
		--database="$(cat ` + connection + `/dbname)" --ssl-mode=VERIFY_IDENTITY --ssl-ca=` + connection + `/ca.crt --connect-timeout=3 -N -e "$1"
}
`

// awaitApplied waits until a member has applied all that the primary has committed now.
func (c *subject) awaitApplied(ordinal int) {
	c.t.Helper()
	executed := c.runMySQL(leading, `select replace(@@global.gtid_executed, '\n', '')`)
	eventually(c.t, readyTimeout, c.podName(ordinal)+" has everything", func(ctx context.Context) error {
		missing, err := queryMySQL(ctx, c.namespace, c.podName(ordinal), "select gtid_subtract('"+executed+"', @@global.gtid_executed)")
		if err == nil && missing != "" {
			err = errors.New("it lacks " + missing)
		}
		return err
	})
}

// readMySQLContent is a checksum of each table of applications that a member has.
func readMySQLContent(ctx context.Context, namespace, pod string) (map[string]string, error) {
	tables, err := queryMySQL(ctx, namespace, pod, "select concat('`', table_schema, '`.`', table_name, '`') from information_schema.tables "+
		"where table_type = 'BASE TABLE' and table_schema not in ('mysql', 'sys', 'information_schema', 'performance_schema') order by 1")
	sums := map[string]string{}
	for table := range strings.FieldsSeq(tables) {
		if err == nil {
			sums[table], err = queryMySQL(ctx, namespace, pod, "checksum table "+table+"; select count(*) from "+table)
		}
	}
	return sums, err
}

// checkSameContent compares the content of all members, while no client writes.
func (c *subject) checkSameContent(members int) {
	c.t.Helper()
	contents := map[string]map[string]string{}
	for n := range members {
		c.awaitApplied(n)
		content, err := readMySQLContent(c.t.Context(), c.namespace, c.podName(n))
		must(c.t, err, "read the content of "+c.podName(n))
		contents[c.podName(n)] = content
	}
	if first := contents[c.podName(0)]; members < 2 || len(first) == 0 {
		return // there is nothing to compare yet
	}
	if err := writehistory.CompareContent(contents); err != nil {
		c.t.Errorf("the members differ: %v", err)
	}
}

// mysqlSurvivesEvents: an application that knows the connection Secret writes through a
// switchover, the deletion of the primary's pod and the end of its server. What was
// acknowledged is on every member, and in a cluster that begins with a backup.
func mysqlSurvivesEvents(c *subject) {
	c.t.Helper()
	members := len(c.listPods())
	w := c.startWriter()
	target := c.podName((c.findLeading() + 1) % members)
	c.requestSwitchover("e2e", target)
	c.waitFor(readyTimeout, target+" leads", func(obj v1alpha1.Cluster) error {
		if now := obj.CommonStatus().Primary; now != target {
			return fmt.Errorf("%s leads", now)
		}
		return nil
	})
	w.goesOn()

	var pod corev1.Pod
	c.readObject(&pod, target)
	deletePod(c.t, &pod, false)
	next := c.awaitOtherPrimary(target)
	w.goesOn()

	_, err := runCommand(inContainer(c.t.Context(), mysql.engine), c.namespace, next, "", "sh", "-c", "kill -9 $(cat "+agentapi.RunDir+"/mysqld.pid)")
	must(c.t, err, "kill mysqld in "+next)
	c.awaitOtherPrimary(next)
	w.goesOn()
	w.stopWriting()
	for n := range members {
		w.checkMember(n)
	}
	mysql.awaitUnited(c, members)
	mysqlRestoresBackup(c)
}

// awaitOtherPrimary waits until the cluster is whole with another primary than one, and
// returns it.
func (c *subject) awaitOtherPrimary(former string) (primary string) {
	c.t.Helper()
	c.waitFor(readyTimeout, "another member than "+former+" leads, and all serve", func(obj v1alpha1.Cluster) error {
		if primary = obj.CommonStatus().Primary; primary == "" || primary == former {
			return fmt.Errorf("primary is %q", primary)
		}
		return checkWhole(obj)
	})
	return primary
}
