//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// What stands on a member's volume, and where an older copy of it is kept: a
// name with a dot is none of the agent's.
const (
	volumeContent = "cd /var/lib/holdfast && "
	olderCopy     = ".older"
	newerCopy     = ".newer"
)

// keepCopy copies what is on the primary's volume, while nothing is written.
func (c *cluster) keepCopy() {
	c.t.Helper()
	c.runSQL(leading, "checkpoint")
	_, err := runCommand(c.t.Context(), c.namespace, c.podName(0), "", "sh", "-c",
		volumeContent+"rm -rf "+olderCopy+" && mkdir "+olderCopy+" && cp -a pgdata leader.json "+olderCopy)
	must(c.t, err, "copy the primary's volume")
}

// awaitRenewals waits until the Lease was renewed so often: what the primary has flushed now
// is on it after two.
func (c *cluster) awaitRenewals(times int) {
	c.t.Helper()
	var before *metav1.MicroTime
	eventually(c.t, readyTimeout, "the Lease is renewed", func(ctx context.Context) error {
		var l coordinationv1.Lease
		if err := env.client.Get(ctx, c.nameOf(postgres.lease), &l); err != nil {
			return err
		}
		if before != nil && !before.Equal(l.Spec.RenewTime) {
			times--
		}
		if before = l.Spec.RenewTime; times > 0 {
			return fmt.Errorf("renewed at %s, %d times to go", before, times)
		}
		return nil
	})
}

// putCopyBack has the primary's pod find the older copy on its volume. That its data is older
// is known from the Lease.
func (c *cluster) putCopyBack() {
	c.t.Helper()
	c.awaitRenewals(2)
	// A server that runs would write its own pg_control into the older copy.
	must(c.t, c.toAll(0, "STOP"), "freeze the primary")
	_, err := runCommand(c.t.Context(), c.namespace, c.podName(0), "", "sh", "-c",
		volumeContent+"rm -rf "+newerCopy+" && mkdir "+newerCopy+" && mv pgdata leader.json "+newerCopy+" && cp -a "+olderCopy+"/pgdata "+olderCopy+"/leader.json .")
	must(c.t, err, "put the older copy in place")
	c.removePod(0)
}

// removePod deletes a pod without any grace.
func (c *cluster) removePod(ordinal int) {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.podName(ordinal)}}
	must(c.t, client.IgnoreNotFound(env.client.Delete(c.t.Context(), pod, client.GracePeriodSeconds(0))), "delete the pod")
}

// tableChecksums is a checksum per table of a member, read from the tables themselves.
func (c *cluster) tableChecksums(ordinal int) string {
	c.t.Helper()
	var sums []string
	for table := range strings.FieldsSeq(c.runSQL(ordinal, "select quote_ident(relname) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r' order by 1")) {
		sums = append(sums, table+"="+c.runSQL(ordinal, "select count(*) || ':' || coalesce(sum(hashtextextended(t::text, 0)), 0) from public."+table+" t"))
	}
	return strings.Join(sums, " ")
}

// sameTables compares the content of a replica with the primary's.
func (c *cluster) sameTables(ordinal int) {
	c.t.Helper()
	if ordinal == c.findLeading() {
		ordinal = 0 // of two members, the other one
		if c.findLeading() == 0 {
			ordinal = 1
		}
	}
	c.waitReplayed(ordinal)
	if own, its := c.tableChecksums(ordinal), c.tableChecksums(leading); own != its {
		c.t.Errorf("%s holds %s, and the primary %s", c.podName(ordinal), own, its)
	}
}

// writeRows writes rows that distinguish one history from another.
func (c *cluster) writeRows(tag string, rows int) {
	c.t.Helper()
	c.runSQL(leading, "create table if not exists public.ledger (n bigserial primary key, tag text, pad text)")
	c.runSQL(leading, fmt.Sprintf("insert into public.ledger (tag, pad) select '%s', repeat(md5(g::text), 8) from generate_series(1, %d) g", tag, rows))
}

// awaitOlderData waits for the result of the request.
func (c *cluster) awaitOlderData(id string) {
	c.t.Helper()
	c.waitFor(readyTimeout, "the request is carried out", func(obj *v1alpha1.PostgresCluster) error {
		for _, o := range obj.Status.Requests {
			if o.ID == id && strings.Contains(o.Result, "went on with older data, on timeline") {
				return nil
			}
		}
		return fmt.Errorf("the requests are %v", obj.Status.Requests)
	})
}

// olderData: the primary's volume goes back to an older copy. It leads only when
// a person says so, on a new timeline; a replica that holds what was discarded is
// held, even when the primary has written more at once.
func olderData(t *testing.T) {
	// The replica would lead with its newer data.
	c := newCluster(t, 2, func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Failover = &v1alpha1.PostgresFailover{NoFailover: []int32{1}}
	})
	c.waitReady()
	c.writeRows("before", 1000)
	c.sameTables(1)
	c.keepCopy()
	c.writeRows("lost", 20000)
	c.sameTables(1)

	c.putCopyBack()
	shell := newDocsShell(t, c.namespace)
	c.waitCondition(readyTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDataStale, v1alpha1.AnnotationContinueWithOlderData)
	if out := shell.runStep(t, "OlderData", "conditions"); !strings.Contains(out, "Stalled/DataStale: ") {
		t.Errorf("the conditions are %s", out)
	}
	shell.runStep(t, "OlderData", "request")
	c.awaitOlderData(c.getCluster().GetAnnotations()[v1alpha1.AnnotationContinueWithOlderData])
	if out := shell.runStep(t, "OlderData", "result"); !strings.Contains(out, "went on with older data, on timeline") {
		t.Errorf("the requests are %s", out)
	}
	c.writeRows("after", 40000)
	c.waitCondition(readyTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDataDiverged, c.podName(1))
	if lost := c.runSQL(leading, "select count(*) from public.ledger where tag = 'lost'"); lost != "0" {
		t.Errorf("%s rows are on the primary that were discarded", lost)
	}
	if timeline := c.runSQL(leading, "select timeline_id from pg_control_checkpoint()"); timeline == "2" {
		t.Errorf("the primary went on on timeline %s", timeline)
	}
	// It stays so, whatever restarts it.
	shell.runStep(t, "OlderData", "delete-pod", "orders-0", c.podName(1))
	c.waitCondition(readyTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDataDiverged, c.podName(1))
	eventually(t, readyTimeout, "the new pod holds the replica", func(ctx context.Context) error {
		_, err := runCommand(ctx, c.namespace, c.podName(1), "", "test", "-e", "/var/lib/holdfast/pgdata.ahead")
		return err
	})
	shell.runStep(t, "OlderData", "save-held")
	if saved, err := os.Stat(filepath.Join(shell.folder, "orders-1.tar")); err != nil || saved.Size() < 16<<20 {
		t.Errorf("the data of the held member is not saved: %v, %v", saved, err)
	}
	shell.runStep(t, "OlderData", "remove-mark")
	eventually(t, readyTimeout, "the replica is marked again", func(ctx context.Context) error {
		_, err := runCommand(ctx, c.namespace, c.podName(1), "", "test", "-e", "/var/lib/holdfast/pgdata.ahead")
		return err
	})
	shell.runStep(t, "OlderData", "discard")
	c.waitReady()
	c.sameTables(1)
}
