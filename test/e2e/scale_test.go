//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// scaleUnderWrites goes from one member up to some, by these steps, and back to
// two while an application writes.
func scaleUnderWrites(t *testing.T, ups ...int) {
	c := newCluster(t, 1)
	c.waitReady()
	w := c.startWriter()
	primary := c.podIncarnation(0)
	scale := func(members int, phase string) {
		mark := c.markPlace()
		watching := watchReadOnly(c, phase == v1alpha1.ReasonScalingUp)
		if members == 5 {
			newDocsShell(t, c.namespace).runStep(t, "Scale", "scale")
		} else {
			c.scaleTo(int32(members))
		}
		obj := c.waitReady()
		watching()
		checkMembers(t, c, obj, members)
		phases := c.phasesSince(mark)
		t.Logf("to %d members: %s", members, strings.Join(phases, " "))
		if !slices.Contains(phases, phase) {
			t.Errorf("to %d members, the phases were %v, without %s", members, phases, phase)
		}
		w.goesOn()
	}
	for _, members := range ups {
		scale(members, v1alpha1.ReasonScalingUp)
	}
	scale(2, v1alpha1.ReasonScalingDown)
	for n := range slices.Max(ups) {
		var volume corev1.PersistentVolumeClaim
		c.readObject(&volume, c.volumeName(n))
		if _, member := volume.Labels[v1alpha1.LabelMember]; member != (n < 2) || volume.DeletionTimestamp != nil {
			t.Errorf("volume %s: labels %v, deleted %v", volume.Name, volume.Labels, volume.DeletionTimestamp)
		}
	}
	w.stopWriting()
	c.waitReplayed(1)
	w.checkMember(1)
	if now := c.podIncarnation(0); now != primary {
		t.Errorf("scaling touched the primary: %s, before %s", now, primary)
	}
}

// checkMembers compares status with the pods that there are.
func checkMembers(t *testing.T, c *cluster, obj *v1alpha1.PostgresCluster, want int) {
	t.Helper()
	var reported, are, replicas []string
	for _, m := range obj.Status.Members {
		reported = append(reported, fmt.Sprintf("%s %s on %s", m.Name, m.Role, m.Node))
	}
	for i, pod := range c.listPods() {
		role := v1alpha1.RoleReplica
		if i == 0 {
			role = v1alpha1.RolePrimary
		} else {
			replicas = append(replicas, pod.Name)
		}
		are = append(are, fmt.Sprintf("%s %s on %s", pod.Name, role, pod.Spec.NodeName))
	}
	if !slices.Equal(reported, are) || len(are) != want {
		t.Errorf("status reports %v, there are %v, want %d", reported, are, want)
	}
	if obj.Status.Replicas != int32(want) || obj.Status.ReadyReplicas != int32(want) {
		t.Errorf("status says %d of %d ready, want %d", obj.Status.ReadyReplicas, obj.Status.Replicas, want)
	}
	c.waitBehind("-ro", replicas...)
}

// strayLimit is how long a member that stopped streaming may stay behind the
// read-only Service: two seconds, and one for the reads of both.
const strayLimit = 3 * time.Second

// watchReadOnly checks whether the read-only Service sends clients to members
// that stream, and to no other, until the function that it returns is
// called. A member that leaves stops streaming before the nodes can know, and
// one that connects again does not stream for a moment.
func watchReadOnly(c *cluster, growing bool) func() {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		since := map[string]time.Time{}
		for growing && ctx.Err() == nil {
			strays, streaming, err := notStreaming(ctx, c)
			if err != nil && ctx.Err() == nil {
				c.t.Error(err)
			}
			for pod := range since {
				if !slices.Contains(strays, pod) {
					delete(since, pod)
				}
			}
			for _, pod := range strays {
				if since[pod].IsZero() {
					since[pod] = time.Now()
				}
				if away := time.Since(since[pod]); away > strayLimit {
					c.t.Errorf("%s is behind %s-ro and does not stream for %s; those that do: %v", pod, c.name, away, streaming)
				}
			}
			time.Sleep(pollInterval)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// notStreaming are the members behind the read-only Service that do not
// stream, and those that do.
func notStreaming(ctx context.Context, c *cluster) (strays, streaming []string, err error) {
	pods, err := podsBehind(ctx, c.namespace, c.name+"-ro")
	if err != nil {
		return nil, nil, err
	}
	out, err := runLocalQuery(ctx, c.namespace, c.podName(leading), "app", "select split_part(application_name, '_', 1) from pg_stat_replication where state = 'streaming'")
	if err != nil {
		return nil, nil, err
	}
	streaming = strings.Fields(out)
	return slices.DeleteFunc(pods, func(pod string) bool { return slices.Contains(streaming, pod) }), streaming, nil
}

// waitReplayed waits until a replica has all that the primary has now.
func (c *cluster) waitReplayed(ordinal int) {
	c.t.Helper()
	position := c.runSQL(leading, "select pg_current_wal_lsn()")
	eventually(c.t, readyTimeout, "the replica has everything", func(ctx context.Context) error {
		out, err := runLocalQuery(ctx, c.namespace, c.podName(ordinal), "app", fmt.Sprintf("select pg_last_wal_replay_lsn() >= '%s'", position))
		if err == nil && out != "t" {
			err = fmt.Errorf("it has not replayed %s", position)
		}
		return err
	})
}

// laggingReplicaLeaves: a replica that falls behind gets no readers until it
// has caught up.
func laggingReplicaLeaves(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	w := c.startWriter()
	c.waitBehind("-ro", c.podName(1))
	replica := c.podIncarnation(1)
	c.runSQL(1, "select pg_wal_replay_pause()")
	c.waitBehind("-ro")
	w.goesOn()
	c.runSQL(1, "select pg_wal_replay_resume()")
	c.waitBehind("-ro", c.podName(1))
	c.waitReady()
	w.stopWriting()
	c.waitReplayed(1)
	w.checkMember(1)
	if now := c.podIncarnation(1); now != replica {
		t.Errorf("the replica was restarted: %s, before %s", now, replica)
	}
}
