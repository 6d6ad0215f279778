// Package toyengine is an engine that follows docs/engines.md in a module of its
// own: the generic packages drive it from create to deletion, and know nothing of
// it. Its database greets its clients, and the greeting is set through it.
package toyengine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Port that the database listens on.
const Port = 7000

// suffixClient of the Service that clients connect to.
const suffixClient = "-client"

// containerName of the database in a member's pod.
const containerName = "toy"

// kind is what a ToyCluster's members are.
var kind = objects.Kind{
	GVK:       GroupVersion.WithKind(clusterKind),
	App:       "toy",
	Container: containerName,
	User:      65532,
	Ports:     []objects.Port{{Name: "toy", Number: Port}},
	Lease:     "-members",
	Clients:   []string{suffixClient},
}

// membersOf is the members of c.
func membersOf(c *ToyCluster) objects.Set {
	return objects.Set{Kind: kind, Cluster: c, Storage: c.Spec.Storage}
}

// ErrGreetingRefused is the database's answer to a greeting that it does not take.
var ErrGreetingRefused = errors.New("the greeting is refused")

// Engine runs toy clusters.
type Engine struct {
	*memberset.MemberEngine
	// SetGreeting asks the database of a pod to greet so.
	SetGreeting func(ctx context.Context, pod *corev1.Pod, greeting string) error
}

var _ engine.Engine[*ToyCluster, memberset.Observation] = &Engine{}

// Observe implements engine.Engine.
func (e *Engine) Observe(ctx context.Context, c *ToyCluster) (memberset.Observation, error) {
	return e.MemberEngine.Observe(ctx, membersOf(c))
}

// Act implements engine.Engine.
func (e *Engine) Act(ctx context.Context, c *ToyCluster, s engine.Step) error {
	if s.Type != stepSetGreeting {
		return e.MemberEngine.Act(ctx, membersOf(c), s)
	}
	if err := e.CheckUnchanged(ctx, membersOf(c)); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := e.Reader.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: s.Target}, &pod); err != nil {
		return fmt.Errorf("read pod %s: %w", s.Target, err)
	}
	if pod.UID != s.UID {
		return nil // another one by now: the next pass looks again
	}
	err := e.SetGreeting(ctx, &pod, s.Subject)
	if errors.Is(err, ErrGreetingRefused) {
		return &engine.Blocked{Reason: v1alpha1.ReasonInvalidParameter, Message: fmt.Sprintf("spec.greeting %q is refused by member %s: change it", s.Subject, s.Target)}
	}
	return err
}
