//go:build soak

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// olderDataPeriod is half an hour, or what HOLDFAST_SOAK_OLDER_DATA says, such
// as 2m.
func olderDataPeriod(t *testing.T) time.Duration {
	text := os.Getenv("HOLDFAST_SOAK_OLDER_DATA")
	if text == "" {
		return 30 * time.Minute
	}
	period, err := time.ParseDuration(text)
	must(t, err, "HOLDFAST_SOAK_OLDER_DATA")
	return period
}

// olderDataAtRandom puts older copies in the primary's place, with replicas that
// run, that are away, and that were scaled away, kills primaries and deletes
// Leases. After each, every member holds what the primary does, or is held.
func olderDataAtRandom(t *testing.T, period time.Duration) {
	c := newCluster(t, 2)
	c.waitReady()
	c.writeRows("first", 1000)
	for round, end := 0, time.Now().Add(period); time.Now().Before(end); round++ {
		id := fmt.Sprintf("round-%d", round)
		procedure := rand.IntN(5)
		rows := []int{10, 1000, 50000}[rand.IntN(3)]
		t.Logf("%s: procedure %d, then %d rows", id, procedure, rows)
		c.sameTables(1)
		switch procedure {
		case 0: // the primary dies
			c.writeRows(id, rows)
			c.removePod(0)
			c.waitAnswers(0)
		case 1: // both die at once
			c.writeRows(id, rows)
			c.removePod(1)
			c.removePod(0)
			c.waitAnswers(0)
		case 2: // an older copy, with or without the Lease
			c.goBack(id, rows, rand.IntN(2) == 0)
		case 3: // an older copy, while the replica starts anew
			c.keepCopy()
			c.writeRows(id+"-lost", 20000)
			c.sameTables(1)
			c.removePod(1)
			c.putCopyBack()
			c.goOnIfAsked(id)
			c.writeRows(id, rows)
		case 4: // an older copy, and a volume that a scale-down has kept
			c.keepCopy()
			c.writeRows(id+"-lost", 20000)
			c.sameTables(1)
			c.scaleTo(1)
			c.waitReady()
			c.putCopyBack()
			c.goOnIfAsked(id)
			c.writeRows(id, rows)
			c.scaleTo(2)
		}
		c.settleOlderData(id)
		if found := c.runSQL(leading, fmt.Sprintf("select count(*) from public.ledger where tag = '%s'", id)); found != strconv.Itoa(rows) {
			t.Errorf("%s: %s of %d acknowledged rows are there", id, found, rows)
		}
	}
}

// waitAnswers waits for a member that is started again, which no person has
// to allow.
func (c *cluster) waitAnswers(ordinal int) {
	c.t.Helper()
	eventually(c.t, readyTimeout, c.podName(ordinal)+" answers", func(ctx context.Context) error {
		_, err := runLocalQuery(ctx, c.namespace, c.podName(ordinal), "app", "select 1")
		return err
	})
}

// goBack puts an older copy in the primary's place.
func (c *cluster) goBack(id string, rows int, withoutLease bool) {
	c.t.Helper()
	c.keepCopy()
	c.writeRows(id+"-lost", 20000)
	c.sameTables(1)
	c.putCopyBack()
	if withoutLease {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name + "-primary"}}
		must(c.t, client.IgnoreNotFound(env.client.Delete(c.t.Context(), lease)), "delete the Lease")
	}
	c.goOnIfAsked(id)
	c.writeRows(id, rows)
}

// goOnIfAsked makes the request where the primary waits for it, until it serves.
func (c *cluster) goOnIfAsked(id string) {
	c.t.Helper()
	requested := false
	c.waitFor(readyTimeout, "the primary serves", func(obj *v1alpha1.PostgresCluster) error {
		for _, cond := range obj.Status.Conditions {
			if cond.Type == v1alpha1.ConditionAvailable && cond.Status == metav1.ConditionTrue {
				if _, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(leading), "app", "create temporary table probe ()"); err == nil {
					return nil
				}
			}
			if cond.Type == v1alpha1.ConditionStalled && cond.Reason == v1alpha1.ReasonDataStale && !requested {
				c.requestRecovery(v1alpha1.AnnotationContinueWithOlderData, id)
				requested = true
			}
		}
		return fmt.Errorf("phase %s", obj.Status.Phase)
	})
}

// settleOlderData waits until the cluster is ready, or until the replica is held,
// which is then discarded; and compares.
func (c *cluster) settleOlderData(id string) {
	c.t.Helper()
	held := false
	c.waitFor(2*readyTimeout, "the cluster is settled after "+id, func(obj *v1alpha1.PostgresCluster) error {
		for _, cond := range obj.Status.Conditions {
			held = held || cond.Type == v1alpha1.ConditionStalled && cond.Reason == v1alpha1.ReasonDataDiverged
			if cond.Type == v1alpha1.ConditionStalled && cond.Reason == v1alpha1.ReasonDataStale {
				c.requestRecovery(v1alpha1.AnnotationContinueWithOlderData, id+"-again")
			}
		}
		if held {
			return nil
		}
		if _, err := runLocalQuery(c.t.Context(), c.namespace, c.podName(1), "app", "select 1"); err != nil {
			return err
		}
		return rolledOut(obj)
	})
	if held {
		c.t.Logf("%s: the replica is held", id)
		c.deleteMember(1)
	}
	c.waitReady()
	c.sameTables(1)
}

// deleteMember deletes the volume and the pod of a member that holds what the
// primary lacks.
func (c *cluster) deleteMember(ordinal int) {
	c.t.Helper()
	volume := &corev1.PersistentVolumeClaim{}
	c.readObject(volume, c.volumeName(ordinal))
	must(c.t, env.client.Delete(c.t.Context(), volume), "delete the volume")
	eventually(c.t, goneTimeout, "the volume goes", func(ctx context.Context) error {
		c.removePod(ordinal)
		now := &corev1.PersistentVolumeClaim{}
		err := env.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.volumeName(ordinal)}, now)
		if client.IgnoreNotFound(err) == nil && (err != nil || now.UID != volume.UID) {
			return nil
		}
		return fmt.Errorf("%s is still there: %w", volume.Name, err)
	})
}
