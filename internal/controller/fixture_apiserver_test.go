//go:build apiserver

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller"
	"github.com/holdfast-db/holdfast/internal/controller/backup"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/secrets"
	"github.com/holdfast-db/holdfast/internal/tracing"
)

func TestMain(m *testing.M) { apitest.RunTests(m) }

// world is a namespace with simulated members, and a person who looks and
// edits.
type world struct {
	*apitest.Cluster
	t          *testing.T
	kind       *kind
	person     client.Client
	simulation *simulation
	// agent is the image of the operators that are started from now on.
	agent string
	// operatorNamespace is that of their pods.
	operatorNamespace string
	// tracer of the operators; nil for none.
	tracer *tracing.Tracer
	// concurrentBackups is how many of them are made at the same time; 0 for any number.
	concurrentBackups int
}

// agentImage is the operator's, where a test does not exchange it.
const agentImage = "holdfast:test"

// operatorNamespace is the operator's, where a test does not exchange it.
const operatorNamespace = "holdfast-system"

func newWorld(t *testing.T, k *kind) *world {
	t.Helper()
	w := &world{Cluster: apitest.New(t), t: t, kind: k, agent: agentImage, operatorNamespace: operatorNamespace}
	w.person = w.As(t, "kubectl-edit")
	w.simulation = simulate(t, w.Cluster, k)
	return w
}

// cluster is what a test declares.
func (w *world) cluster(name string, replicas int32) v1alpha1.Cluster {
	c := w.kind.cluster(w)
	c.SetName(name)
	c.SetNamespace(w.Namespace)
	c.Common().Replicas = &replicas
	return c
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	if err := w.person.Create(w.t.Context(), obj); err != nil {
		w.t.Fatal(err)
	}
}

// get reads an object as the API server has it now.
func (w *world) get(obj client.Object) {
	w.t.Helper()
	if err := w.person.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		w.t.Fatal(err)
	}
}

// edit changes an object as a person does.
func edit[T client.Object](w *world, obj T, change func(T)) {
	w.t.Helper()
	w.get(obj)
	before := obj.DeepCopyObject().(client.Object)
	change(obj)
	if err := w.person.Patch(w.t.Context(), obj, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// scale changes the number of members.
func (w *world) scale(c v1alpha1.Cluster, members int32) {
	w.t.Helper()
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Replicas = &members })
}

// await waits until a cluster is as a condition says.
func await[C conditions.Getter](w *world, c C, what string, holds func(C) bool) {
	w.t.Helper()
	apitest.Eventually(w.t, what, func(ctx context.Context) (bool, string) {
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return false, err.Error()
		}
		return holds(c), describeDrifts(c)
	})
}

func (w *world) awaitReady(c v1alpha1.Cluster) {
	w.t.Helper()
	await(w, c, "Ready", ready)
}

func ready[C conditions.Getter](c C) bool {
	return observedGeneration(c) == c.GetGeneration() && conditions.IsTrue(c, v1alpha1.ConditionReady)
}

func describeDrifts(c conditions.Getter) string {
	text := fmt.Sprintf("generation %d of %d", observedGeneration(c), c.GetGeneration())
	for _, cond := range c.GetConditions() {
		text += fmt.Sprintf("; %s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message)
	}
	return text
}

// operator is one process of the operator, wired as main does it.
type operator struct {
	*transport
	*apitest.Operator
}

// operate starts an operator. With a limit it dies in the limit's write: the
// API server takes that write, and its answer is lost. More is wired beside the kind.
func (w *world) operate(limit int, more ...func(ctrl.Manager)) *operator {
	w.t.Helper()
	ctx, crash := context.WithCancel(context.Background())
	o := &operator{transport: &transport{limit: limit, crashed: make(chan struct{}), crash: crash}}
	wrap := func(next http.RoundTripper) http.RoundTripper { o.next = next; return o.transport }
	o.Operator = w.StartOperator(ctx, w.t, controller.CacheOptions([]string{w.Namespace}), wrap, func(mgr ctrl.Manager) {
		w.wire(mgr)
		for _, wire := range more {
			wire(mgr)
		}
	})
	return o
}

// wire is what main does for a kind, with simulated members.
func (w *world) wire(mgr ctrl.Manager) {
	w.t.Helper()
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		w.t.Fatal(err)
	}
	live = w.tracer.WrapClient(live)
	applier, err := apply.New(mgr.GetCache(), live, apply.Options{Prune: controller.Applied()})
	if err != nil {
		w.t.Fatal(err)
	}
	backups, err := apply.New(mgr.GetCache(), live, apply.Options{Prune: backup.ListOwnedKinds()})
	if err != nil {
		w.t.Fatal(err)
	}
	metadata, err := secrets.NewMetadata(mgr, controller.CacheOptions([]string{w.Namespace}).DefaultNamespaces)
	if err != nil {
		w.t.Fatal(err)
	}
	named := secrets.New(metadata, live)
	members := &memberset.MemberEngine{
		Settings: objects.Settings{ImageRepository: w.kind.repository, AgentImage: w.agent, OperatorNamespace: w.operatorNamespace},
		Reader:   mgr.GetCache(), Writer: live, Members: w.simulation, Secrets: named, Clock: clock.RealClock{},
	}
	if err := w.kind.setup(w, wiring{mgr: mgr, members: members, applier: applier, backups: backups, named: named, keys: secrets.New(metadata, live)}); err != nil {
		w.t.Fatal(err)
	}
}

// stop ends an operator; one that crashed has nothing to say about it.
func (o *operator) stop() { _ = o.Stop() }

var errCrashed = errors.New("the operator is dead")

// transport sees every request of an operator.
type transport struct {
	next    http.RoundTripper
	limit   int
	crash   func()
	crashed chan struct{}

	mu     sync.Mutex
	writes int
	dead   bool
	seen   []string
	// held is what requests wait for, but watches and events; nil for nothing.
	held chan struct{}
}

// hold has requests wait from now on, until they are let go.
func (o *transport) hold() (letGo func()) {
	held := make(chan struct{})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = held
	return func() { close(held) }
}

// RoundTrip implements http.RoundTripper.
func (o *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	last, held, err := o.note(r)
	if err != nil {
		return nil, err
	}
	if held != nil {
		<-held
	}
	response, err := o.next.RoundTrip(r)
	if !last {
		return response, err
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	o.crash()
	close(o.crashed)
	return nil, errCrashed
}

// note counts a request, and says whether it is the operator's last, and what it waits for.
func (o *transport) note(r *http.Request) (last bool, held chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return false, nil, errCrashed
	}
	if r.URL.Query().Get("watch") == "true" || strings.Contains(r.URL.Path, "/events") {
		return false, nil, nil
	}
	o.seen = append(o.seen, r.Method+" "+r.URL.RequestURI())
	if r.Method != http.MethodGet {
		o.writes++
		o.dead = o.writes == o.limit
	}
	return o.dead, o.held, nil
}

// take returns the requests since the last call, watches and events apart.
func (o *transport) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	return seen
}

// copySeen returns the requests since take was last called, and leaves them.
func (o *transport) copySeen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

// objects are the names of what carries the cluster's label, by kind.
func (w *world) objects(c v1alpha1.Cluster) map[string][]string {
	w.t.Helper()
	found := map[string][]string{}
	for _, gvk := range append(controller.Applied(), corev1.SchemeGroupVersion.WithKind("Pod")) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		err := w.person.List(w.t.Context(), list, client.InNamespace(c.GetNamespace()), client.MatchingLabels{v1alpha1.LabelCluster: c.GetName()})
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range list.Items {
			found[gvk.Kind] = append(found[gvk.Kind], list.Items[i].Name)
		}
	}
	return found
}

// isRead says whether a request changes nothing; dry runs do not.
func isRead(request string) bool {
	return strings.HasPrefix(request, http.MethodGet+" ") || strings.Contains(request, "dryRun=All")
}

// isStatus says whether a request writes a cluster's status.
func isStatus(request string) bool {
	path, _, _ := strings.Cut(request, "?")
	return strings.Contains(path, "clusters/") && strings.HasSuffix(path, "/status")
}
