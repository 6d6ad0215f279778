//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// agentKills is how often in a row the primary's agent is killed: the kubelet
// would wait for minutes by then.
const agentKills = 6

// agentDies: the agent crashes and its pod and container stay. Its pod stays,
// another member may lead meanwhile, and every row is there.
func agentDies(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.runSQL(leading, "create table kept (n int); insert into kept select generate_series(1, 1000)")
	before := c.allIncarnations()
	for range agentKills {
		c.killAgent(0)
	}
	c.killAgent(1)
	c.waitReady()
	if now := c.allIncarnations(); now != before {
		t.Errorf("the guard starts an agent again, not the kubelet:\n%s\nbefore\n%s", now, before)
	}

	// The first process itself: its container is the kubelet's to start again.
	restarts := containerRestarts(t, c, 0)
	// Go's first process hears of SIGQUIT as of a crash. Whether the answer
	// arrives is a matter of luck.
	_, _ = runCommand(t.Context(), c.namespace, c.podName(0), "", "sh", "-c", "kill -QUIT 1")
	eventually(t, readyTimeout, "the container runs again", func(context.Context) error {
		if containerRestarts(t, c, 0) == restarts {
			return errors.New("it has not restarted")
		}
		return nil
	})
	c.waitReady()
	c.waitBehind("-rw", c.podName(leading))
	c.waitBehind("-ro", c.podName(1-c.findLeading()))
	c.runSQL(leading, "insert into kept values (1001)")
	c.sameRows("kept", 0, 1)
}

// killAgent kills a member's agent, and waits until another has a database that
// serves.
func (c *cluster) killAgent(ordinal int) {
	c.t.Helper()
	before := c.agentOf(ordinal)
	began := time.Now()
	// Nothing in the container outlives it, and so does not what kills it.
	_, _ = runCommand(c.t.Context(), c.namespace, c.podName(ordinal), "", "sh", "-c", "kill -KILL "+before)
	eventually(c.t, readyTimeout, "the database of another agent answers", func(ctx context.Context) error {
		now, err := agentOf(ctx, c.namespace, c.podName(ordinal))
		if err == nil && now == before {
			err = errors.New("the agent was not killed")
		}
		if err == nil {
			_, err = runLocalQuery(ctx, c.namespace, c.podName(ordinal), "app", "select 1")
		}
		return err
	})
	c.t.Logf("%s answers %s after its agent was killed", c.podName(ordinal), time.Since(began).Round(100*time.Millisecond))
}

// agentOf is the number of a member's agent in its container: the parent of the
// postmaster.
func agentOf(ctx context.Context, namespace, pod string) (string, error) {
	const script = `p=$(head -n 1 /var/lib/holdfast/pgdata/postmaster.pid) && while read k v; do [ "$k" != PPid: ] || echo "$v"; done </proc/$p/status`
	agent, err := runCommand(ctx, namespace, pod, "", "sh", "-c", script)
	if err == nil && (agent == "" || agent == "1" || agent == "0") {
		err = fmt.Errorf("the postmaster's parent is %q", agent)
	}
	return agent, err
}

func (c *cluster) agentOf(ordinal int) string {
	c.t.Helper()
	var agent string
	eventually(c.t, readyTimeout, "the agent is found", func(ctx context.Context) (err error) {
		agent, err = agentOf(ctx, c.namespace, c.podName(ordinal))
		return err
	})
	return agent
}

// sameRows compares the content of a table between members.
func (c *cluster) sameRows(table string, ordinals ...int) {
	c.t.Helper()
	sum := "select count(*) || ' ' || coalesce(md5(string_agg(t::text, ',' order by t::text)), '') from " + table + " t"
	want := c.runSQL(leading, sum)
	for _, n := range ordinals {
		eventually(c.t, readyTimeout, "the rows are the same", func(context.Context) error {
			if got := c.runSQL(n, sum); got != want {
				return fmt.Errorf("%s of %s: %s, of the primary %s", table, c.podName(n), got, want)
			}
			return nil
		})
	}
	c.t.Logf("%s on %v: %s", table, ordinals, want)
}

// outdatedPrimaryCrashes: while a roll-out waits, its agent starts the database
// of an outdated primary again, and nothing replaces its pod for that.
func outdatedPrimaryCrashes(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.runSQL(leading, "create table kept (n int); insert into kept select generate_series(1, 1000)")
	primary := c.podIncarnation(0)
	c.changeSpec("nodeSelector: {holdfast.dev/test: nowhere}")
	c.waitCondition(readyTimeout, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonMemberDown, c.podName(1), "cannot be scheduled")
	for range 2 {
		before, err := runCommand(t.Context(), c.namespace, c.podName(0), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
		must(t, err, "find the postmaster")
		began := time.Now()
		_, err = runCommand(t.Context(), c.namespace, c.podName(0), "", "sh", "-c", "kill -KILL "+before)
		must(t, err, "kill the postmaster")
		eventually(t, readyTimeout, "the primary answers", func(ctx context.Context) error {
			now, err := runCommand(ctx, c.namespace, c.podName(0), "", "head", "-n", "1", "/var/lib/holdfast/pgdata/postmaster.pid")
			if err == nil && now == before {
				err = errors.New("the postmaster was not killed")
			}
			if err == nil {
				_, err = runLocalQuery(ctx, c.namespace, c.podName(leading), "app", "insert into kept values (0)")
			}
			return err
		})
		t.Logf("an outdated primary takes writes %s after its crash", time.Since(began).Round(100*time.Millisecond))
		c.waitBehind("-rw", c.podName(0))
	}
	if now := c.podIncarnation(0); now != primary {
		t.Errorf("an outdated primary that crashed was replaced: %s, before %s", now, primary)
	}
	c.changeSpec("nodeSelector: null")
	c.waitReady()
	c.sameRows("kept", 1)
}

func containerRestarts(t *testing.T, c *cluster, ordinal int) int32 {
	t.Helper()
	var pod corev1.Pod
	c.readObject(&pod, c.podName(ordinal))
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == "postgres" {
			return s.RestartCount
		}
	}
	return 0
}
