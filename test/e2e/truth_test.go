//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// truth compares what a status says with what is, many times a second.
type truth struct {
	c *subject
	// verified is the newest generation that was called rolled out and was.
	mu       sync.Mutex
	verified int64
	samples  int
}

// watchTruth checks until the test ends.
func watchTruth(c *subject) *truth {
	w := &truth{c: c}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := w.takeSample(ctx); err != nil && ctx.Err() == nil {
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
		c.t.Logf("checked %d times", w.samples)
	})
	return w
}

// takeSample reads the object before and after the pods: only what the same
// status said at both times was said of what lies between.
func (w *truth) takeSample(ctx context.Context) error {
	before, err := w.getObject(ctx)
	if err != nil {
		return err
	}
	pods, err := memberPods(ctx, w.c.namespace, w.c.name)
	if err != nil {
		return err
	}
	after, err := w.getObject(ctx)
	if err != nil {
		return err
	}
	w.samples++
	if err := checkHonest(before); err != nil {
		return err
	}
	result, err := computeStatus(before)
	if err != nil {
		return err
	}
	if before.GetResourceVersion() != after.GetResourceVersion() || result.Status != status.CurrentStatus {
		return nil
	}
	ready := 0
	for i := range pods {
		if podReady(&pods[i]) {
			ready++
		}
	}
	if want := before.Common().DesiredReplicas(); ready != want || len(pods) != want {
		return fmt.Errorf("generation %d is called current with %d pods, %d of them ready, instead of %d", before.GetGeneration(), len(pods), ready, want)
	}
	return w.verifyClaim(ctx, before)
}

func (w *truth) getObject(ctx context.Context) (v1alpha1.Cluster, error) {
	obj := w.c.kind.empty()
	return obj, env.client.Get(ctx, w.c.nameOf(""), obj)
}

// verifyClaim asks the databases, when a generation is called current for the first
// time.
func (w *truth) verifyClaim(ctx context.Context, obj v1alpha1.Cluster) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if obj.GetGeneration() == w.verified {
		return nil
	}
	w.verified = obj.GetGeneration()
	if err := w.c.kind.inForce(ctx, obj); err != nil {
		return fmt.Errorf("generation %d is called current: %w", obj.GetGeneration(), err)
	}
	return nil
}

// awaitRolledOut waits until the current generation was called rolled out, and verified.
func (w *truth) awaitRolledOut() {
	w.c.t.Helper()
	obj := w.c.waitReady()
	eventually(w.c.t, execTimeout, "the truth of the status is known", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.verified != obj.GetGeneration() {
			return fmt.Errorf("generation %d was verified, not %d", w.verified, obj.GetGeneration())
		}
		return nil
	})
}

func truthOfStatus(t *testing.T, k *kind) {
	c := newSubject(t, k, 1)
	w := watchTruth(c)
	w.awaitRolledOut()
	c.scaleTo(k.several)
	w.awaitRolledOut()
	c.changeSpec(k.reloaded)
	w.awaitRolledOut()
	c.changeSpec(k.restarted)
	w.awaitRolledOut()
	t.Log("phases:", strings.Join(c.phasesSince(0), " "))
}

// truthThroughRestart asks for changes that an operator sees only when it
// starts, and restarts it in the middle of one.
func truthThroughRestart(t *testing.T, k *kind) {
	c := newOperated(t, k, 1)
	w := watchTruth(c)
	w.awaitRolledOut()
	must(t, c.operator.killPods(t.Context()), "kill the operator")
	c.changeSpec(k.reloaded)
	w.awaitRolledOut()
	c.scaleTo(k.several)
	c.waitFor(readyTimeout, "scaling is under way", func(obj v1alpha1.Cluster) error {
		if obj.CommonStatus().ObservedGeneration != obj.GetGeneration() {
			return errors.New("not observed yet")
		}
		return nil
	})
	must(t, c.operator.killPods(t.Context()), "kill the operator")
	w.awaitRolledOut()
	eventually(t, operatorTimeout, "the operator is back", func(ctx context.Context) error { return c.operator.checkReplicas(ctx, 1) })
}
