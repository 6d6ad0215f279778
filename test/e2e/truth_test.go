//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// truth compares what a status says with what is, many times a second.
type truth struct {
	c *cluster
	// verified is the newest generation that was called rolled out and was.
	mu       sync.Mutex
	verified int64
	samples  int
}

// watchTruth looks until the test ends.
func watchTruth(c *cluster) *truth {
	w := &truth{c: c}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := w.sample(ctx); err != nil && ctx.Err() == nil {
				c.t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(truthInterval):
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
		c.t.Logf("looked %d times", w.samples)
	})
	return w
}

// sample looks at the object before and after the pods: only what the same
// status said at both times was said of what lies between.
func (w *truth) sample(ctx context.Context) error {
	before, err := w.object(ctx)
	if err != nil {
		return err
	}
	pods, err := memberPods(ctx, w.c.namespace, w.c.name)
	if err != nil {
		return err
	}
	after, err := w.object(ctx)
	if err != nil {
		return err
	}
	w.samples++
	if err := honest(before); err != nil {
		return err
	}
	result, err := compute(before)
	if err != nil {
		return err
	}
	if before.ResourceVersion != after.ResourceVersion || result.Status != status.CurrentStatus {
		return nil
	}
	ready := 0
	for i := range pods {
		if podReady(&pods[i]) {
			ready++
		}
	}
	if want := before.Spec.DesiredReplicas(); ready != want || len(pods) != want {
		return fmt.Errorf("generation %d is called current with %d pods, %d of them ready, instead of %d", before.Generation, len(pods), ready, want)
	}
	return w.verify(ctx, before)
}

func (w *truth) object(ctx context.Context) (*v1alpha1.PostgresCluster, error) {
	var obj v1alpha1.PostgresCluster
	return &obj, env.client.Get(ctx, w.c.key(""), &obj)
}

// verify asks the databases, when a generation is called current for the first
// time.
func (w *truth) verify(ctx context.Context, obj *v1alpha1.PostgresCluster) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj.Generation == w.verified {
		return nil
	}
	w.verified = obj.Generation
	if err := inForce(ctx, obj); err != nil {
		return fmt.Errorf("generation %d is called current: %w", obj.Generation, err)
	}
	return nil
}

// inForce says what of a spec the databases and the Services do not have.
func inForce(ctx context.Context, obj *v1alpha1.PostgresCluster) error {
	var replicas []string
	var errs []error
	for n := range obj.Spec.DesiredReplicas() {
		pod := fmt.Sprintf("%s-%d", obj.Name, n)
		if n > 0 {
			replicas = append(replicas, pod)
		}
		query, want := "select pg_is_in_recovery()", fmt.Sprint(n > 0)[:1]
		for _, name := range slices.Sorted(maps.Keys(obj.Spec.Parameters)) {
			query += fmt.Sprintf(", current_setting('%s')", name)
			want += "|" + obj.Spec.Parameters[name]
		}
		query += ", (select count(*) from pg_settings where pending_restart)"
		have, err := local(ctx, obj.Namespace, pod, "postgres", query)
		if err == nil && have != want+"|0" {
			err = fmt.Errorf("%s has %s, want %s", pod, have, want+"|0")
		}
		errs = append(errs, err)
	}
	for service, want := range map[string][]string{"-rw": {obj.Name + "-0"}, "-ro": replicas} {
		have, err := behind(ctx, obj.Namespace, obj.Name+service)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("behind %s: %v, want %v", service, have, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wait waits until the current generation was called rolled out, and verified.
func (w *truth) wait() {
	w.c.t.Helper()
	obj := w.c.waitReady()
	eventually(w.c.t, execTimeout, "the truth of the status is known", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.verified != obj.Generation {
			return fmt.Errorf("generation %d was verified, not %d", w.verified, obj.Generation)
		}
		return nil
	})
}

func truthOfStatus(t *testing.T) {
	c := newCluster(t, 1)
	w := watchTruth(c)
	w.wait()
	c.scale(2)
	w.wait()
	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters = map[string]string{"work_mem": "7MB"} })
	w.wait()
	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters["max_connections"] = "123" })
	w.wait()
	t.Log("phases:", strings.Join(c.phasesSince(0), " "))
}

// truthThroughRestart asks for changes that an operator sees only when it
// starts, and restarts it in the middle of one.
func truthThroughRestart(t *testing.T) {
	keepOperator(t)
	c := newCluster(t, 1)
	w := watchTruth(c)
	w.wait()
	must(t, killOperator(t.Context()), "kill the operator")
	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters = map[string]string{"work_mem": "9MB"} })
	w.wait()
	c.scale(2)
	c.waitFor(readyTimeout, "scaling is under way", func(obj *v1alpha1.PostgresCluster) error {
		if obj.Status.ObservedGeneration != obj.Generation {
			return errors.New("not observed yet")
		}
		return nil
	})
	must(t, killOperator(t.Context()), "kill the operator")
	w.wait()
	eventually(t, operatorTimeout, "the operator is back", func(ctx context.Context) error { return operatorsRun(ctx, 1) })
}
