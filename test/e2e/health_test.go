//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// hungPeriod is for a postmaster to stand still: long enough to be noticed, and too
// short to be killed for it.
const hungPeriod = 40 * time.Second

// hungServer: the agent of the primary stands still, and the guard ends its database:
// another member leads. A postmaster stands still: its old sessions go on, and no client
// can connect any more. That is reported, and no Service leads there.
func hungServer(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.runSQL(leading, "create table kept as select generate_series(1, 1000) as n")
	first := c.findLeading()
	agent := c.agentOf(first)
	c.signalProcess(first, "STOP", agent)
	eventually(t, readyTimeout, "another member leads", func(context.Context) error {
		if c.findLeading() == first {
			return errors.New("it does not")
		}
		return nil
	})
	c.runSQL(leading, "insert into kept values (1001)")
	c.waitReady()
	if now := c.agentOf(first); now == agent {
		t.Errorf("the agent that stood still was not ended: %s", now)
	}
	primary := c.findLeading()
	pod := c.podIncarnation(primary)

	postmaster, err := runCommand(t.Context(), c.namespace, c.podName(primary), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
	must(t, err, "find the postmaster")
	began := time.Now()
	c.signalProcess(primary, "STOP", postmaster)
	c.waitCondition(hungPeriod, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonPrimaryUnavailable, "new connection")
	t.Logf("noticed %s after the postmaster stood still", time.Since(began).Round(100*time.Millisecond))
	c.waitCondition(hungPeriod, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonMemberDown, c.podName(primary), "new connection")
	c.waitFor(hungPeriod, "it is not Ready", func(obj *v1alpha1.PostgresCluster) error {
		if rolledOut(obj) == nil {
			return fmt.Errorf("it is: %+v", obj.Status.Conditions)
		}
		return nil
	})
	c.waitBehind("-rw")
	c.signalProcess(primary, "CONT", postmaster)
	c.waitReady()
	c.waitBehind("-rw", c.podName(primary))
	eventually(t, serviceTimeout, "it is the same postmaster", func(ctx context.Context) error {
		now, err := runCommand(ctx, c.namespace, c.podName(primary), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
		if err == nil && now != postmaster {
			err = fmt.Errorf("%s, before %s", now, postmaster)
		}
		return err
	})

	// For good: it is killed, and another member leads.
	began = time.Now()
	c.signalProcess(primary, "STOP", postmaster)
	eventually(t, readyTimeout, "it was started again", func(ctx context.Context) error {
		now, err := runCommand(ctx, c.namespace, c.podName(primary), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
		if err == nil && now == postmaster {
			err = fmt.Errorf("it is %s", now)
		}
		return err
	})
	c.waitReady()
	t.Logf("serves again %s after the postmaster stood still for good", time.Since(began).Round(100*time.Millisecond))
	if got := c.runSQL(leading, "select count(*) from kept"); got != "1001" {
		t.Errorf("rows: %s", got)
	}
	c.sameTables(1)
	if now := c.podIncarnation(primary); now != pod {
		t.Errorf("its pod was touched: %s, before %s", now, pod)
	}
}

// signalProcess sends a signal to a process of a member.
func (c *cluster) signalProcess(ordinal int, name, pid string) {
	c.t.Helper()
	_, err := runCommand(c.t.Context(), c.namespace, c.podName(ordinal), "", "sh", "-c", "kill -"+name+" "+pid)
	must(c.t, err, "send "+name+" to "+pid)
}
