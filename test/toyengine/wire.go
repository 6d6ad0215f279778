package toyengine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/secrets"
)

// Members is where the operator learns what members report: the poller of
// internal/agentclient is one.
type Members interface {
	memberset.Members
	controller.Forgetter
	// EventSource asks for a pass of a cluster when one of its members reports
	// something new.
	EventSource() source.Source
}

// Database is how the operator reaches the database of a pod.
type Database interface {
	SetGreeting(ctx context.Context, pod *corev1.Pod, greeting string) error
}

// wireToyCluster makes the controller of ToyClusters, as wireKind in main.go makes
// those of other kinds.
func wireToyCluster(mgr ctrl.Manager, namespaces []string, members Members, database Database) error {
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up a client: %w", err)
	}
	applier, err := apply.New(mgr.GetCache(), live, apply.Options{Prune: controller.Applied()})
	if err != nil {
		return fmt.Errorf("set up the applier: %w", err)
	}
	metadata, err := secrets.NewMetadata(mgr, controller.CacheOptions(namespaces).DefaultNamespaces)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	named, keys := secrets.New(metadata, live), secrets.New(metadata, live)
	e := &Engine{SetGreeting: database.SetGreeting, MemberEngine: &memberset.MemberEngine{
		Settings: objects.Settings{ImageRepository: "example.com/toy", AgentImage: "holdfast:test"},
		Reader:   mgr.GetCache(), Writer: live, Members: members, Secrets: named, Clock: clock.RealClock{},
	}}
	r := &controller.Reconciler[*ToyCluster, memberset.Observation]{
		Client: mgr.GetClient(), Live: live, AgentImage: "holdfast:test", Engine: e, Applier: applier,
		Forgetters: []controller.Forgetter{e, members, named, keys}, Keys: keys,
		Recorder: mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{},
		New: func() *ToyCluster { return &ToyCluster{} },
	}
	return r.Setup(mgr, kind.GVK, 4, members.EventSource(), named.EventSource(), keys.EventSource())
}
