//go:build apiserver

package controller_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/controller"
	"github.com/holdfast-db/holdfast/internal/controller/backup"
	"github.com/holdfast-db/holdfast/internal/controller/database"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
	"github.com/holdfast-db/holdfast/internal/secrets"
)

// kind is what the tests of the loop need to know of a kind of cluster. What
// they do is the same for all.
type kind struct {
	name       string
	repository string // of its images
	// several and more are numbers of members beyond one.
	several, more int32
	// stride is how many writes of a change of scale lie between the deaths of
	// operators in the tests.
	stride int
	// services are the suffixes of its Services, in alphabetic order; entry is
	// the one that applications write through.
	services []string
	entry    string
	port     int32
	// setting is one that members take up, with its value.
	setting, value string
	// version and primary are what a status tells of settled members. Where
	// members elect who leads, that is at first.
	version, primary string
	leads            bool
	// copied says that backups of it can be made, and impossible are mistakes that
	// cannot be made with it, since the API server refuses the field.
	copied     bool
	impossible []mistake

	list       func() client.ObjectList
	cluster    func(w *world) v1alpha1.Cluster
	parameters func(c v1alpha1.Cluster) *v1alpha1.Parameters
	storage    func(c v1alpha1.Cluster) *v1alpha1.StorageSpec
	setup      func(w *world, parts wiring) error
	// says completes what the agent of a running pod says.
	says func(s *simulation, pod *corev1.Pod, m *agentapi.Status)
	// restored puts a database onto a volume; nil where a member makes nothing
	// of it.
	restored func(s *simulation, task agentapi.RestoreTask, claim *corev1.PersistentVolumeClaim)
}

// kinds under test.
var kinds = []*kind{postgresKind, etcdKind, mysqlKind}

// eachKind runs a test of the loop for every kind side by side, each in a world
// of its own.
func eachKind(t *testing.T, test func(t *testing.T, w *world)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, newWorld(t, k))
		})
	}
}

// eachCopiedKind runs a test of backups for every kind that has them.
func eachCopiedKind(t *testing.T, test func(t *testing.T, w *world)) {
	for _, k := range kinds {
		if k.copied {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				test(t, newWorld(t, k))
			})
		}
	}
}

// wiring is what the operator's process gives to every kind.
type wiring struct {
	mgr     ctrl.Manager
	members *memberset.MemberEngine
	applier controller.Syncer
	backups controller.Syncer
	// named are the Secrets of spec.tls, keys those of stores.
	named, keys *secrets.Watcher
}

// setUp makes the controller of a kind.
func setUp[C v1alpha1.Cluster, O any](w *world, parts wiring, e engine.Engine[C, O], forgets controller.Forgetter, empty func() C) error {
	r := &controller.Reconciler[C, O]{
		Client: w.tracer.WrapClient(parts.mgr.GetClient()), Live: parts.members.Writer, AgentImage: w.agent, Tracer: w.tracer,
		Engine: e, Forgetters: []controller.Forgetter{forgets, parts.named, parts.keys}, Keys: parts.keys,
		Applier: parts.applier, Recorder: parts.mgr.GetEventRecorder("holdfast"), Clock: clock.RealClock{},
		New: empty, Pauses: w.simulation.Pauses,
	}
	if err := r.Setup(parts.mgr, v1alpha1.GroupVersion.WithKind(w.kind.name), 4, w.simulation.source(), parts.named.EventSource(), parts.keys.EventSource()); err != nil {
		return err
	}
	backups := &backup.Reconciler{
		Client: w.tracer.WrapClient(parts.mgr.GetClient()), Live: parts.members.Writer, Applier: parts.backups, Tracer: w.tracer, Kinds: map[string]backup.Copies{w.kind.name: r},
		AgentImage: w.agent, Concurrent: w.concurrentBackups, Recorder: r.Recorder, Clock: clock.RealClock{},
	}
	return backups.Setup(parts.mgr, map[string]client.Object{w.kind.name: empty()})
}

// setUpDatabases makes the controller of Databases.
func setUpDatabases(parts wiring) error {
	r := &database.Reconciler{
		Client: parts.mgr.GetClient(), Live: parts.members.Writer, Applier: parts.applier, Engines: database.Engines(),
		Recorder: parts.mgr.GetEventRecorder("holdfast"),
	}
	return r.Setup(parts.mgr, 4)
}

var postgresKind = &kind{
	name: "PostgresCluster", repository: "docker.io/library/postgres",
	several: 2, more: 3, stride: 1,
	services: []string{"-members", "-ro", "-rw"}, entry: "-rw", port: 5432,
	setting: "work_mem", value: "8MB",
	version: "17.4", primary: "orders-0", copied: true,
	list:       func() client.ObjectList { return &v1alpha1.PostgresClusterList{} },
	cluster:    func(w *world) v1alpha1.Cluster { return w.NewPostgresCluster("", 1) },
	parameters: func(c v1alpha1.Cluster) *v1alpha1.Parameters { return &asPostgres(c).Spec.Parameters },
	storage:    func(c v1alpha1.Cluster) *v1alpha1.StorageSpec { return &asPostgres(c).Spec.Storage },
	setup: func(w *world, parts wiring) error {
		e := &postgres.Engine{MemberEngine: parts.members}
		if err := setUpDatabases(parts); err != nil {
			return err
		}
		return setUp(w, parts, e, e, func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} })
	},
	says: func(_ *simulation, pod *corev1.Pod, m *agentapi.Status) {
		m.Version, m.Role, m.State = "17.4", v1alpha1.RoleReplica, agentapi.StateStreaming
		if strings.HasSuffix(pod.Name, "-0") {
			m.Role, m.State = v1alpha1.RolePrimary, agentapi.StateRunning
		}
	},
}

func asPostgres(c v1alpha1.Cluster) *v1alpha1.PostgresCluster {
	return c.(*v1alpha1.PostgresCluster)
}
