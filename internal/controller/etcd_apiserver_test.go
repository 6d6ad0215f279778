//go:build apiserver

package controller_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
)

const etcdRepository = "quay.io/coreos/etcd"

var etcdKind = &kind{
	name: "EtcdCluster", repository: etcdRepository,
	several: 3, more: 5, stride: 5,
	services: []string{"-client", "-members"}, entry: "-client", port: 2379,
	setting: "snapshot-count", value: "5000",
	version: "3.6.16", primary: "orders-0", leads: true, copied: true,
	list: func() client.ObjectList { return &v1alpha1.EtcdClusterList{} },
	cluster: func(w *world) v1alpha1.Cluster {
		return &v1alpha1.EtcdCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace},
			Spec: v1alpha1.EtcdClusterSpec{
				CommonSpec: v1alpha1.CommonSpec{Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
				Version:    "3.6.16", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
			},
		}
	},
	parameters: func(c v1alpha1.Cluster) *v1alpha1.Parameters { return &c.(*v1alpha1.EtcdCluster).Spec.Parameters },
	storage:    func(c v1alpha1.Cluster) *v1alpha1.StorageSpec { return &c.(*v1alpha1.EtcdCluster).Spec.Storage },
	setup: func(w *world, parts wiring) error {
		e := &etcd.Engine{MemberEngine: parts.members, Dial: func(_ context.Context, pod *corev1.Pod, _ string, _ agentclient.ClientTLS) (etcd.Group, error) {
			return connection{groupOf(w.simulation), pod.Name}, nil
		}}
		return setUp(w, parts, e, e, func() *v1alpha1.EtcdCluster { return &v1alpha1.EtcdCluster{} })
	},
	says: func(s *simulation, pod *corev1.Pod, m *agentapi.Status) { groupOf(s).says(s, pod, m) },
	restored: func(s *simulation, task agentapi.RestoreTask, claim *corev1.PersistentVolumeClaim) {
		groupOf(s).restored(task, claim.UID)
	},
}

// groups of the simulations, which outlive the operators.
var groups sync.Map

func groupOf(s *simulation) *group {
	g, _ := groups.LoadOrStore(s, &group{t: s.t, data: map[types.UID]uint64{}})
	return g.(*group)
}

// group plays the etcd of one namespace's cluster.
type group struct {
	t  *testing.T
	mu sync.Mutex
	// cluster is the UID of the object that the group was bootstrapped for.
	cluster string
	// members in the order in which they were admitted.
	members []etcdapi.GroupMember
	ids     uint64
	leader  uint64
	// data is the ID of the member on a volume.
	data map[types.UID]uint64
	// unused is the share of its data that every member could give back, in
	// percent, and defragmented the members that were asked to, in that order.
	unused       int
	defragmented []string
}

// connection to the etcd of one pod.
type connection struct {
	*group
	pod string
}

func (c connection) Defragment(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.defragmented = append(c.defragmented, c.pod)
	return nil
}

func hex(id uint64) string { return strconv.FormatUint(id, 16) }

func (g *group) find(id uint64) *etcdapi.GroupMember {
	for i := range g.members {
		if g.members[i].ID == hex(id) {
			return &g.members[i]
		}
	}
	return nil
}

func (g *group) admit(peerURL string, learner bool) uint64 {
	g.ids++
	g.members = append(g.members, etcdapi.GroupMember{ID: hex(0xe0 + g.ids), PeerURL: peerURL, Learner: learner})
	return 0xe0 + g.ids
}

// says is what the agent of a pod says, after it has done what it may.
func (g *group) says(s *simulation, pod *corev1.Pod, m *agentapi.Status) {
	config, claim := &corev1.ConfigMap{}, &corev1.PersistentVolumeClaim{}
	at := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.LabelCluster] + "-config"}
	var received agentapi.ClusterConfig
	if s.world.Cache.Get(context.Background(), at, config) != nil || json.Unmarshal([]byte(config.Data[agentapi.ConfigKey]), &received) != nil {
		return
	}
	at.Name = "data-" + pod.Name
	if s.world.Cache.Get(context.Background(), at, claim) != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if received.Fresh && received.UID != g.cluster {
		g.cluster, g.members, g.data = received.UID, nil, map[types.UID]uint64{} // a cluster of the same name, with nothing of the one before
	}
	g.start(pod.Name, claim.UID, received.JoinGrants[pod.Name])
	id := g.data[claim.UID]
	member := g.find(id)
	m.Version, m.Role = "3.6.16", v1alpha1.RoleMember
	if _, tag, found := strings.Cut(pod.Spec.Containers[0].Image, etcdRepository+":v"); found {
		m.Version = tag
	}
	own := etcdapi.GroupStatus{}
	switch {
	case id == 0:
		m.State, m.Serving, m.SystemIdentifier = agentapi.StateWaiting, false, ""
		return
	case member == nil:
		m.State, m.Hold, m.Serving = agentapi.StateHeld, agentapi.HoldRemoved, false
		return
	case member.Learner:
		m.State, m.Serving = agentapi.StateCatchingUp, false
	default:
		m.State = agentapi.StateRunning
		own.DataUnused = g.unused
	}
	view := slices.Clone(g.members)
	slices.SortFunc(view, func(a, b etcdapi.GroupMember) int { return cmp.Compare(a.ID, b.ID) })
	own.Group = &etcdapi.Group{Self: hex(id), Leader: hex(g.leader), Members: view}
	m.Engine = own
}

// restored is a group of one that a restore made on a volume.
func (g *group) restored(task agentapi.RestoreTask, volume types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cluster, g.members, g.data = task.UID, nil, map[types.UID]uint64{}
	g.leader = g.admit(task.PeerURL, false)
	g.data[volume] = g.leader
	g.find(g.leader).Name = task.Member
}

// start begins a member on a volume, if a join grant allows it.
func (g *group) start(pod string, volume types.UID, grant etcdapi.JoinGrant) {
	if g.data[volume] != 0 && g.find(g.data[volume]) != nil {
		return
	}
	switch grant.State {
	case etcdapi.JoinNew:
		if len(g.members) > 0 {
			g.t.Errorf("%s is asked to bootstrap a second cluster", pod)
			return
		}
		g.leader = g.admit(grant.InitialCluster[pod], false)
		g.data[volume] = g.leader
		g.find(g.leader).Name = pod
	case etcdapi.JoinExisting:
		id, err := strconv.ParseUint(grant.MemberID, 16, 64)
		if member := g.find(id); err == nil && member != nil && member.Name == "" && member.PeerURL == grant.InitialCluster[pod] {
			member.Name, g.data[volume] = pod, id
		}
	}
}

func (g *group) AddLearner(_ context.Context, peerURL string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if m.Learner || m.Name == "" || m.PeerURL == peerURL {
			return nil
		}
	}
	g.admit(peerURL, true)
	return nil
}

func (g *group) Promote(_ context.Context, id uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.find(id); m != nil && m.Name != "" {
		m.Learner = false
	}
	return nil
}

func (g *group) Remove(_ context.Context, id uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id == g.leader {
		return fmt.Errorf("the leader %x was to be removed", id)
	}
	g.members = slices.DeleteFunc(g.members, func(m etcdapi.GroupMember) bool { return m.ID == hex(id) })
	return nil
}

func (g *group) MoveLeader(_ context.Context, id uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.find(id); m != nil && !m.Learner {
		g.leader = id
	}
	return nil
}

func (*group) Compact(context.Context) error { return nil }
func (*group) Disarm(context.Context) error  { return nil }
func (*group) Close() error                  { return nil }
