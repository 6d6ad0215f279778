// Package etcd is the operational knowledge of etcd clusters: who belongs to
// one, which change of its membership is safe now, and what care it needs.
package etcd

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Ports that etcd listens on: for clients, and for its other members.
const (
	Port     = 2379
	PeerPort = 2380
)

// suffixClient of the Service that clients connect to: a contract with users.
const suffixClient = "-client"

// containerName of the database in a member's pod.
const containerName = "etcd"

// kind is what an EtcdCluster's members are. Members distinguish applications from
// each other by the common name of their certificates.
var kind = objects.Kind{
	GVK:         v1alpha1.GroupVersion.WithKind("EtcdCluster"),
	App:         "etcd",
	Container:   containerName,
	User:        65532,
	Ports:       []objects.Port{{Name: "client", Number: Port, Operator: true}, {Name: "peer", Number: PeerPort, Peers: true}},
	Lease:       "-members",
	Clients:     []string{suffixClient},
	Application: "app",
}

// membersOf is the members of c.
func membersOf(c *v1alpha1.EtcdCluster) objects.Set {
	return objects.Set{Kind: kind, Cluster: c, Storage: c.Spec.Storage}
}

// MembersOf is the members of c, for those who forecast what becomes of them.
func MembersOf(c *v1alpha1.EtcdCluster) objects.Set { return membersOf(c) }

// Engine runs etcd clusters.
type Engine struct {
	*memberset.MemberEngine
	// Dial reaches the etcd of a pod, whose certificate carries a name.
	Dial func(ctx context.Context, pod *corev1.Pod, serverName string, credentials agentclient.ClientTLS) (Group, error)

	attempts attempts
}

// Observation is one cluster as it is observed.
type Observation struct {
	memberset.Observation
	// Tried says when a step was last done, by its type and target.
	Tried map[string]time.Time
	// Precaution is the backup that is made before an upgrade that is asked for;
	// nil while there is none.
	Precaution *v1alpha1.Backup
	// Quota in bytes of the configuration that members have; 0 while there is none.
	Quota int64
}

// Observe implements engine.Engine.
func (e *Engine) Observe(ctx context.Context, c *v1alpha1.EtcdCluster) (Observation, error) {
	observed, err := e.MemberEngine.Observe(ctx, membersOf(c))
	if err != nil {
		return Observation{}, err
	}
	before, err := e.observePrecaution(ctx, c)
	if err != nil {
		return Observation{}, err
	}
	quota, err := e.observeQuota(ctx, c)
	return Observation{Observation: observed, Tried: e.attempts.listAttempts(membersOf(c).Key()), Precaution: before, Quota: quota}, err
}

// observeQuota reads the quota of the configuration that members have. What is no configuration
// has none.
func (e *Engine) observeQuota(ctx context.Context, c *v1alpha1.EtcdCluster) (int64, error) {
	if c.Spec.Quota != nil {
		return 0, nil // it is as declared
	}
	s, found := membersOf(c), &corev1.ConfigMap{}
	err := e.Reader.Get(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: s.Named(objects.SuffixConfig)}, found, ctrlclient.UnsafeDisableDeepCopy)
	if apierrors.IsForbidden(err) {
		return 0, nil // who plans with a person's rights may not read it
	}
	if err != nil {
		return 0, ctrlclient.IgnoreNotFound(err)
	}
	var config etcdapi.GroupConfig
	if json.Unmarshal([]byte(found.Data[agentapi.ConfigKey]), &config) != nil {
		return 0, nil
	}
	return config.DataLimit, nil
}

// Forget drops what is remembered of a cluster that is gone.
func (e *Engine) Forget(cluster types.NamespacedName) {
	e.MemberEngine.Forget(cluster)
	e.attempts.forgetCluster(cluster)
}

// attempts remembers when steps were done whose effect shows late, or that may
// be in vain, so that they are not done again at once. It only saves work.
type attempts struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]map[string]time.Time
}

func (a *attempts) listAttempts(cluster types.NamespacedName) map[string]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	copied := make(map[string]time.Time, len(a.clusters[cluster]))
	for step, at := range a.clusters[cluster] {
		copied[step] = at
	}
	return copied
}

func (a *attempts) noteAttempt(cluster types.NamespacedName, s engine.Step, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clusters == nil {
		a.clusters = map[types.NamespacedName]map[string]time.Time{}
	}
	if a.clusters[cluster] == nil {
		a.clusters[cluster] = map[string]time.Time{}
	}
	noteIn(a.clusters[cluster], s, at)
}

// noteIn notes in a cluster's attempts that a step was tried. With the alarm the
// compactions that led there are forgotten.
func noteIn(tried map[string]time.Time, s engine.Step, at time.Time) {
	tried[attemptKey(s)] = at
	switch s.Type {
	case stepCompact:
		if tried[firstCompact].IsZero() {
			tried[firstCompact] = at
		}
	case stepDisarm:
		delete(tried, stepCompact)
		delete(tried, firstCompact)
	}
}

func (a *attempts) forgetCluster(cluster types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.clusters, cluster)
}
