package tracing

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

// maxOperations bounds what is recorded of one pass. What comes after is only counted.
const maxOperations = 100

// noParent is the parent of what the pass itself does, outside of a step.
const noParent = -1

// Pass is what one pass of a controller does. Its methods do nothing on nil, which is the
// pass of an operator without a collector. They may be called at the same time.
type Pass struct {
	controller, kind string
	object           types.NamespacedName
	reconcileID      string
	start            time.Time

	mu         sync.Mutex
	generation int64
	// blocked are the reasons for which only a person can go on.
	blocked    []string
	operations []operation
	// writes are how many were sent, and written those that the API server took.
	writes  int
	written []string
}

// operation is a part of a pass that becomes a span: a step or a write.
type operation struct {
	// verb of a write, such as apply; empty for a step.
	verb string
	// kind and name of the object; type and target of a step.
	kind, namespace, name, subresource string
	// parent is the step that it belongs to; noParent for none.
	parent     int
	start, end time.Time
	err        error
}

// scope is what a context knows: the pass, and which of its operations is under way.
type scope struct {
	pass   *Pass
	parent int
}

type scopeKey struct{}

func newPass(ctx context.Context, controllerName, kind string, object types.NamespacedName) *Pass {
	return &Pass{controller: controllerName, kind: kind, object: object, reconcileID: string(controller.ReconcileIDFromContext(ctx)), start: time.Now()}
}

// FromContext finds the pass that a context is of; nil for none.
func FromContext(ctx context.Context) *Pass {
	s, _ := ctx.Value(scopeKey{}).(scope)
	return s.pass
}

// SetGeneration records which generation of its object the pass read.
func (p *Pass) SetGeneration(generation int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.generation = generation
}

// AddBlocked records that a part of the pass could not be done, and that only a person can
// fix why. The pass itself returns no error for it.
func (p *Pass) AddBlocked(reason string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = append(p.blocked, reason)
}

// StartStep records a step until end is called. Writes under the context that it returns
// belong to it.
func StartStep(ctx context.Context, stepType, target string) (within context.Context, end func(error)) {
	s, _ := ctx.Value(scopeKey{}).(scope)
	if s.pass == nil {
		return ctx, endNothing
	}
	at := s.pass.begin(operation{kind: stepType, name: target, parent: s.parent})
	if at == noParent {
		return ctx, endNothing
	}
	return context.WithValue(ctx, scopeKey{}, scope{s.pass, at}), func(err error) { s.pass.finish(at, err) }
}

func endNothing(error) {}

// begin adds an operation, and returns where; noParent where there are too many.
func (p *Pass) begin(o operation) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.verb != "" {
		p.writes++
	}
	if len(p.operations) == maxOperations {
		return noParent
	}
	o.start = time.Now()
	p.operations = append(p.operations, o)
	return len(p.operations) - 1
}

func (p *Pass) finish(at int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &p.operations[at]
	o.end, o.err = time.Now(), err
	if o.verb != "" && err == nil {
		p.written = append(p.written, o.path())
	}
}

// setName names an object that the API server chose the name of.
func (p *Pass) setName(at int, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.operations[at].name = name
}

// path is an object as people write it, with the subresource.
func (o *operation) path() string {
	path := o.kind + "/" + o.name
	if o.subresource != "" {
		path += "/" + o.subresource
	}
	return path
}
