//go:build e2e

package e2e

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// agentDies: the agent crashes and its pod stays, as after a container that
// ran out of memory. The same pod comes back as the primary, and as a replica,
// with every row.
func agentDies(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	c.sql(0, "create table kept (n int); insert into kept select generate_series(1, 1000)")
	for _, ordinal := range []int{0, 1} {
		before := containerRestarts(t, c, ordinal)
		// The database's first process hears of SIGQUIT as of a crash. Whether
		// the answer arrives is a matter of luck.
		_, _ = run(t.Context(), c.namespace, c.pod(ordinal), "", "sh", "-c", "kill -QUIT 1")
		eventually(t, readyTimeout, "the container runs again", func(context.Context) error {
			if containerRestarts(t, c, ordinal) == before {
				return errors.New("it has not restarted")
			}
			return nil
		})
		c.waitReady()
		c.waitBehind("-rw", c.pod(0))
		c.waitBehind("-ro", c.pod(1))
	}
	c.sql(0, "insert into kept values (1001)")
	for _, ordinal := range []int{0, 1} {
		eventually(t, readyTimeout, "the rows are there", func(context.Context) error {
			if got := c.sql(ordinal, "select count(*) from kept"); got != "1001" {
				return errors.New("rows: " + got)
			}
			return nil
		})
	}
}

func containerRestarts(t *testing.T, c *cluster, ordinal int) int32 {
	t.Helper()
	var pod corev1.Pod
	c.read(&pod, c.pod(ordinal))
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == "postgres" {
			return s.RestartCount
		}
	}
	return 0
}
