//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	// hungPeriod is for a postmaster to stand still: long enough to be noticed, and
	// too short to be killed for it.
	hungPeriod = 40 * time.Second
	// agentPause is for an agent to stand still without its database.
	agentPause = 17 * time.Second
)

// hungServer: a postmaster stands still. Its old sessions go on, and no client can
// connect any more: that is reported, and no Service leads there.
func hungServer(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.runSQL(0, "create table kept as select generate_series(1, 1000) as n")
	pod := c.podIncarnation(0)

	// The agent alone: nothing happens to the database, nor to who finds it.
	agent := c.agentOf(0)
	c.signalProcess("STOP", agent)
	stopped := false
	for end := time.Now().Add(agentPause); time.Now().Before(end); time.Sleep(pollInterval) {
		have, err := podsBehind(t.Context(), c.namespace, c.name+"-rw")
		must(t, err, "read the Service")
		if stopped = stopped || !slices.Contains(have, c.podName(0)); stopped {
			t.Errorf("an agent that stands still takes its database out of -rw: %v", have)
			break
		}
	}
	c.runSQL(0, "insert into kept values (1001)")
	c.signalProcess("CONT", agent)
	c.waitReady()
	if now := c.agentOf(0); now != agent {
		t.Errorf("the agent was ended: %s, before %s", now, agent)
	}

	postmaster, err := runCommand(t.Context(), c.namespace, c.podName(0), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
	must(t, err, "find the postmaster")
	began := time.Now()
	c.signalProcess("STOP", postmaster)
	c.waitCondition(hungPeriod, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonPrimaryUnavailable, "new connection")
	t.Logf("noticed %s after the postmaster stood still", time.Since(began).Round(100*time.Millisecond))
	c.waitCondition(hungPeriod, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonMemberDown, c.podName(0), "new connection")
	c.waitFor(hungPeriod, "it is not Ready", func(obj *v1alpha1.PostgresCluster) error {
		if rolledOut(obj) == nil {
			return fmt.Errorf("it is: %+v", obj.Status.Conditions)
		}
		return nil
	})
	c.waitBehind("-rw")
	c.signalProcess("CONT", postmaster)
	c.waitReady()
	c.waitBehind("-rw", c.podName(0))
	eventually(t, serviceTimeout, "it is the same postmaster", func(ctx context.Context) error {
		now, err := runCommand(ctx, c.namespace, c.podName(0), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
		if err == nil && now != postmaster {
			err = fmt.Errorf("%s, before %s", now, postmaster)
		}
		return err
	})

	// For good: it is killed, and started again.
	began = time.Now()
	c.signalProcess("STOP", postmaster)
	eventually(t, readyTimeout, "it was started again", func(ctx context.Context) error {
		now, err := runCommand(ctx, c.namespace, c.podName(0), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
		if err == nil && now == postmaster {
			err = fmt.Errorf("it is %s", now)
		}
		return err
	})
	c.waitReady()
	t.Logf("serves again %s after the postmaster stood still for good", time.Since(began).Round(100*time.Millisecond))
	if got := c.runSQL(0, "select count(*) from kept"); got != "1001" {
		t.Errorf("rows: %s", got)
	}
	c.sameTables(1)
	if now := c.podIncarnation(0); now != pod {
		t.Errorf("its pod was touched: %s, before %s", now, pod)
	}
}

// signalProcess sends a signal to a process of the first member.
func (c *cluster) signalProcess(name, pid string) {
	c.t.Helper()
	_, err := runCommand(c.t.Context(), c.namespace, c.podName(0), "", "sh", "-c", "kill -"+name+" "+pid)
	must(c.t, err, "send "+name+" to "+pid)
}
