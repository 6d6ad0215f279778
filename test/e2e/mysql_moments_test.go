//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// archivedMySQL is a group that is written to while its binlog goes to a store.
type archivedMySQL struct {
	*subject
	s    *store
	at   string
	rows int
}

func newArchivedMySQL(t *testing.T, members int32) *archivedMySQL {
	t.Helper()
	needKind(t, mysql)
	a := &archivedMySQL{s: newStore(t, "", "4Gi")}
	namespace := newNamespace(t, "")
	a.s.giveKeys(namespace)
	a.at = fmt.Sprintf("url: 's3://%s/moments', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}", bucket, a.s.endpointURL())
	a.subject = createSubject(t, mysql, namespace, orders, members, "backup: {continuous: true, schedule: '0 0 1 1 *', destination: {"+a.at+"}}")
	a.waitReady()
	a.runMySQL(leading, "create table app.moments (id int primary key, x varchar(200))")
	return a
}

// write adds rows one after the other, each in a transaction of its own.
func (a *archivedMySQL) write(count int) {
	a.t.Helper()
	var statements strings.Builder
	for range count {
		a.rows++
		fmt.Fprintf(&statements, "insert into app.moments values (%d, repeat('x', 100)); ", a.rows)
	}
	a.runMySQL(leading, statements.String())
}

// now is the time by the clock of the primary, after what was written before.
func (a *archivedMySQL) now() string {
	a.t.Helper()
	at := a.runMySQL(leading, "select date_format(utc_timestamp(6), '%Y-%m-%dT%H:%i:%s.%fZ')")
	time.Sleep(10 * time.Millisecond)
	return at
}

// awaitArchived waits until the archive has what is written by now: the primary stores it
// within a minute.
func (a *archivedMySQL) awaitArchived() {
	a.t.Helper()
	prefix := fmt.Sprintf("moments/%s/%s/%s/wal/", a.namespace, a.name, a.getCluster().GetUID())
	count := func() (indexes int) {
		for _, key := range a.s.listKeys(prefix) {
			if strings.HasSuffix(key, ".json") {
				indexes++
			}
		}
		return indexes
	}
	before := count()
	a.write(1) // has the primary begin another file
	eventually(a.t, archiveTimeout, "the binlog is stored", func(context.Context) error {
		if now := count(); now <= before {
			return fmt.Errorf("%d files after %d", now, before)
		}
		return nil
	})
}

// restoreTo is a cluster that begins with the binlog up to a target.
func (a *archivedMySQL) restoreTo(name, target string) *subject {
	a.t.Helper()
	return createSubject(a.t, mysql, a.namespace, name, 1, "restore: {source: {"+a.at+", cluster: "+a.name+"}, target: {"+target+"}}", "backup: {enabled: false}")
}

// wantRows wants a restored cluster to have exactly the first rows.
func (a *archivedMySQL) wantRows(c *subject, rows int) {
	a.t.Helper()
	obj := c.waitFor(restoreTimeout, "the cluster is restored and ready", rolledOut)
	want := fmt.Sprintf("%d\t%d", rows, rows)
	if have := c.runMySQL(leading, "select count(*), max(id) from app.moments"); have != want {
		a.t.Errorf("%s has the rows %q, want %q", c.name, have, want)
	}
	r := obj.CommonStatus().Restore
	if !r.Done() || r.Result == nil || r.Result.Target == nil || r.Result.EndPosition == "" {
		a.t.Errorf("%s says %+v", c.name, r.Result)
	}
}

// mysqlMoments: over a failover to a time before it, to a transaction after it, and to all that
// was archived. What lies behind the archive's end is refused.
func mysqlMoments(t *testing.T) {
	a := newArchivedMySQL(t, 3)
	a.write(10)
	b := a.createBackup("early", v1alpha1.DeletionRetain)
	a.waitBackup(b)
	a.write(5)
	before, first := a.now(), a.rows
	a.write(5)
	a.awaitArchived()
	a.write(3) // the lost primary has not stored these
	lost := a.podName(leading)
	a.killPod(a.findLeading())
	a.awaitOtherPrimary(lost)
	a.rows++
	gtid := a.runMySQL(leading, fmt.Sprintf("set @before = @@global.gtid_executed; insert into app.moments values (%d, 'named'); select gtid_subtract(@@global.gtid_executed, @before)", a.rows))
	second := a.rows
	a.write(4)
	a.awaitArchived()
	all := a.rows
	a.waitReady()

	atTime := a.restoreTo("at-time", "time: '"+before+"'")
	atGTID := a.restoreTo("at-gtid", "gtid: '"+gtid+"'")
	latest := a.restoreTo("latest", "latest: true")
	a.wantRows(atTime, first)
	a.wantRows(atGTID, second)
	a.wantRows(latest, all)
	never := a.restoreTo("never", "time: '"+time.Now().UTC().Format(time.RFC3339)+"'")
	never.waitCondition(restoreTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRestoreFailed, "the archived binlog ends before", "target.latest")
}
