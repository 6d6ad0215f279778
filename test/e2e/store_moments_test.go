//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// archived is a cluster that is written to while its log goes to a store, with
// two backups on the way.
type archived struct {
	*subject
	s  *store
	at string
	// wal is where the WAL lies in the store.
	wal     string
	backups []*v1alpha1.Backup
	writer  *writer
	// lsn is a position, and around the moments before and after it was asked
	// for.
	lsn    string
	around [2]time.Time
}

// newArchived fills a cluster with rows of a kilobyte before it is written to.
func newArchived(t *testing.T, size string, rows int, spec ...string) *archived {
	t.Helper()
	needKind(t, postgres)
	a := &archived{s: newStore(t, "", size)}
	namespace := newNamespace(t, "")
	a.s.giveKeys(namespace)
	a.at = fmt.Sprintf("url: 's3://%s/moments', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}", bucket, a.s.endpointURL())
	a.subject = createSubject(t, postgres, namespace, orders, 1, append(spec, "backup: {continuous: true, schedule: '0 0 1 1 *', destination: {"+a.at+"}}")...)
	a.waitReady()
	a.wal = fmt.Sprintf("moments/%s/%s/%s/wal/", namespace, a.name, a.getCluster().GetUID())
	a.runSQL("create table ballast as select n, repeat(md5(n::text), 32) as text from generate_series(1, " + strconv.Itoa(rows) + ") n")
	a.awaitCopied("early")
	a.writer = a.startWriter()
	a.goesOnFor(50)
	a.awaitCopied("middle")
	a.goesOnFor(50)
	clock := "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
	answer := strings.Split(a.runSQL("select "+clock+", pg_current_wal_insert_lsn(), "+clock), "|")
	a.lsn = answer[1]
	a.around = [2]time.Time{parseMicros(t, answer[0]), parseMicros(t, answer[2])}
	a.goesOnFor(50)
	a.writer.stopWriting()
	a.s.waitStored(a.wal + storedSegment(a.closeSegment()))
	return a
}

func parseMicros(t *testing.T, text string) time.Time {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err, "read a time of the database")
	return time.UnixMicro(n)
}

func (a *archived) runSQL(query string) string {
	a.t.Helper()
	out, err := runLocalQuery(a.t.Context(), a.namespace, a.podName(leading), "app", query)
	must(a.t, err, query)
	return strings.TrimSpace(out)
}

func (a *archived) awaitCopied(name string) {
	a.t.Helper()
	b := a.createBackup(name, v1alpha1.DeletionRetain)
	a.waitBackup(b)
	a.backups = append(a.backups, b)
}

// goesOnFor waits until so many more writes were acknowledged.
func (a *archived) goesOnFor(writes int) {
	a.t.Helper()
	before := a.writer.countWrites()
	eventually(a.t, readyTimeout, "writes go on", func(context.Context) error {
		if now := a.writer.countWrites(); now < before+writes {
			return fmt.Errorf("%d acknowledged after %d", now, before)
		}
		return nil
	})
}

// restoreTo is a cluster that begins with the WAL up to a target.
func (a *archived) restoreTo(name, target string, spec ...string) *subject {
	a.t.Helper()
	return createSubject(a.t, postgres, a.namespace, name, 1, append(spec, "restore: {source: {"+a.at+", cluster: "+a.name+"}, target: {"+target+"}}")...)
}

// wantMoment wants a restored cluster to have all that was acknowledged before
// one moment, and nothing that was begun after another.
func (a *archived) wantMoment(c *subject, before, after time.Time) {
	a.t.Helper()
	obj := c.waitFor(restoreTimeout, "the cluster is restored and ready", rolledOut)
	have := postgres.writtenNumbers(c, 0)
	missing, _ := a.writer.report.findAstray(have, before)
	_, surplus := a.writer.report.findAstray(have, after)
	if len(missing)+len(surplus) > 0 {
		a.t.Errorf("%s at %s: of %d rows %v are missing and %v are too many", c.name, before.UTC().Format(time.RFC3339Nano), len(have), missing, surplus)
	}
	r := obj.CommonStatus().Restore
	if !r.Done() || r.Result == nil || r.Result.RecoveredTo == nil || r.Result.RecoveredTo.After(after) || r.Result.Target == nil {
		a.t.Errorf("%s says %+v", c.name, r.Result)
	}
}

// restoresToMoments: from one archive, to times at random, to a position and to
// its end; and what comes back archives beside it.
func restoresToMoments(t *testing.T, writes int) {
	a := newArchived(t, "4Gi", writes)
	stored := a.s.listKeys(a.wal)
	times := map[string]time.Time{}
	for n, at := range a.writer.report.chooseMoments(3) {
		name := fmt.Sprintf("at-%d", n)
		times[name] = at
		a.restoreTo(name, "time: '"+at.UTC().Format("2006-01-02T15:04:05.000000Z")+"'")
	}
	position := a.restoreTo("position", "lsn: "+a.lsn)
	latest := a.restoreTo("latest", "latest: true", "backup: {continuous: true, schedule: '0 0 1 1 *', destination: {"+a.at+"}}")
	for name, at := range times {
		a.wantMoment(&subject{t: t, kind: postgres, namespace: a.namespace, name: name}, at, at)
	}
	a.wantMoment(position, a.around[0], a.around[1])
	end := time.Now().Add(time.Hour)
	a.wantMoment(latest, end, end)

	own := fmt.Sprintf("moments/%s/latest/%s/wal/", a.namespace, latest.getCluster().GetUID())
	eventually(t, archiveTimeout, "the restored cluster archives its own log", func(context.Context) error {
		latest.closeSegment()
		if len(a.s.listKeys(own)) < 3 {
			return fmt.Errorf("there is %v", a.s.listKeys(own))
		}
		return nil
	})
	if now := a.s.listKeys(a.wal); !slices.Equal(now, stored) {
		t.Errorf("the archive of the source was %d objects, and is %d", len(stored), len(now))
	}
	// What was never archived is not made up, and what is still to come is not
	// begun with.
	future := a.restoreTo("future", "time: '"+end.UTC().Format(time.RFC3339)+"'")
	future.waitCondition(readyTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRestoreRefused, "spec.restore.target.time", "is in the future")
	never := a.restoreTo("never", "time: '"+time.Now().UTC().Format(time.RFC3339)+"'")
	never.waitCondition(restoreTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRestoreFailed, "the archived WAL ends before", "target.latest")
}
