//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// archiveTimeout is for a segment to be stored by an agent that has just found
// out that the store is away, or back.
const archiveTimeout = 3 * time.Minute

// testArchives: the WAL of a cluster under writes goes to a store. When the store
// goes away the database goes on, also when the budget is used up; what is
// missing then is known, and another backup made.
func testArchives(t *testing.T) {
	s := newStore(t, "", "2Gi")
	c := newSubject(t, postgres, 2)
	s.giveKeys(c.namespace)
	c.waitReady()
	before := c.allIncarnations()
	at := fmt.Sprintf("url: 's3://%s/archived', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}", bucket, s.endpointURL())
	c.changeSpec("backup: {enabled: true, continuous: true, walBudget: 64Mi, schedule: '0 0 1 1 *', destination: {" + at + "}}")
	c.waitReady()
	if c.allIncarnations() == before {
		t.Error("no member was restarted for the archive")
	}
	settled := c.allIncarnations()
	w := c.startWriter()
	wal := fmt.Sprintf("archived/%s/%s/%s/wal/", c.namespace, c.name, c.getCluster().GetUID())
	s.waitStored(wal + storedSegment(c.closeSegment()))
	c.madeBackup("-first-")
	c.waitFor(backupTimeout, "status says from when on all can be restored", func(obj v1alpha1.Cluster) error {
		if a := obj.CommonStatus().Archive; a == nil || a.State != v1alpha1.ArchiveArchiving || a.RestorableFrom == nil {
			return fmt.Errorf("the archive is %+v", a)
		}
		return nil
	})

	s.stopStore()
	first := c.closeSegment()
	for range 6 {
		c.closeSegment()
	}
	c.waitCondition(archiveTimeout, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonArchiveGap, "discarded", "spec.backup.walBudget")
	w.goesOn()

	s.startStore()
	s.waitStored(wal + storedSegment(c.closeSegment()))
	gaps := s.listKeys(wal + "gaps/")
	if len(gaps) == 0 { // the volume still had all of it
		s.waitStored(wal + storedSegment(first))
	} else {
		c.madeBackup("-gap-")
	}
	c.waitReady()
	w.goesOn()
	w.stopWriting()
	if now := c.allIncarnations(); now != settled {
		t.Errorf("members were restarted: %s, before %s", now, settled)
	}
}

// madeBackup waits until the operator has made a good backup of a name.
func (c *subject) madeBackup(infix string) {
	c.t.Helper()
	eventually(c.t, backupTimeout, "a backup "+c.name+infix+"…", func(ctx context.Context) error {
		var all v1alpha1.BackupList
		if err := env.client.List(ctx, &all, client.InNamespace(c.namespace)); err != nil {
			return err
		}
		for i := range all.Items {
			if strings.HasPrefix(all.Items[i].Name, c.name+infix) && all.Items[i].HasSucceeded() {
				return nil
			}
		}
		return fmt.Errorf("none of %d backups is", len(all.Items))
	})
}

// closeSegment closes the one that the primary writes, and is its name.
func (c *subject) closeSegment() string {
	c.t.Helper()
	query := func(sql string) string {
		out, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(leading), "app", sql)
		must(c.t, err, sql)
		return strings.TrimSpace(out)
	}
	query("create table if not exists closing (n int)")
	query("insert into closing values (1)")
	name := query("select pg_walfile_name(pg_current_wal_insert_lsn())")
	query("select pg_switch_wal()")
	return name
}

// storedSegment is where an archive keeps a segment: by its timeline.
func storedSegment(name string) string { return name[:8] + "/" + name + ".zst" }

// waitStored waits until the store has an object.
func (s *store) waitStored(key string) {
	s.t.Helper()
	eventually(s.t, archiveTimeout, "the store has "+key, func(context.Context) error {
		if !slices.Contains(s.listKeys(key), key) {
			return fmt.Errorf("it has %d objects there", len(s.listKeys(key[:strings.LastIndex(key, "/")+1])))
		}
		return nil
	})
}
