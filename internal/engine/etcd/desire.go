package etcd

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// seedOrdinal is the member that begins a cluster.
const seedOrdinal = 0

// defaultQuota is etcd's own; small volumes hold less.
var defaultQuota = resource.MustParse("2Gi")

// planDesired is what the objects should be made from. Where the spec cannot be
// followed, what is there stays, and a Stalled fact says which field to correct.
// Quota is that of the configuration that members have, 0 for none.
// The second result says whether volumes and pods may be written at all.
func planDesired(c *v1alpha1.EtcdCluster, view *memberset.View, v versions, g group, r recovery, before precaution, quota int64) (objects.Desired, bool, []condition.Fact) {
	d, settings := memberset.PlanDesired(view), view.Observed.Settings
	var facts []condition.Fact
	memberset.FollowPatch(view, &d, specImage(c, settings), v.firstImage(c, settings))
	if reason, message := v.explainRefusal(c); reason != "" {
		facts = append(facts, memberset.StalledFact(reason, "%s", message))
		memberset.KeepImage(view, &d)
	}
	if v.logsWait || before.holds {
		memberset.KeepImage(view, &d)
	}
	d.Count = countMembers(view.Membership, g)
	writable, faults := memberset.DesireVolumes(view, &d)
	d.Config = clusterConfig(c, d, g, r, quota)
	return d, writable, slices.Concat(facts, before.facts, faults)
}

// countMembers is the number of members that have a pod. The membership leads, and the pods follow:
// a pod appears when its member was admitted, and goes when it was removed. A
// member that is to be replaced keeps its pod; so does one that ran, while no
// member leads: its claim may be a new one that does not say yet whose it is, and
// without its pod it would never be known what has become of its data.
func countMembers(members memberset.Membership, g group) int {
	if !g.led {
		return max(1, g.started, members.Count)
	}
	return max(1, g.ordinals, min(members.Declared, members.Count))
}

// declaredQuota is the quota as a setting by name; nil where the spec declares none.
func declaredQuota(c *v1alpha1.EtcdCluster) map[string]string {
	if c.Spec.Quota == nil {
		return nil
	}
	return map[string]string{"quota": c.Spec.Quota.String()}
}

// clusterConfig is the configuration of the members; quota is that of the one that they have.
func clusterConfig(c *v1alpha1.EtcdCluster, d objects.Desired, g group, r recovery, quota int64) []byte {
	s := membersOf(c)
	config := memberset.BaseConfig(s, d)
	config.Parameters = c.Spec.Parameters
	config.DataLimit = dataQuota(c, d, quota)
	config.JoinGrants = joinGrants(s, d, g)
	config.Recovery = r.request
	return memberset.RenderConfig(config)
}

// dataQuota in bytes; inForce is that of the members' configuration, 0 where it is unknown. The smallest of
// the members' volumes limits it, whatever is declared: one that cannot grow has space for less,
// and one that cannot shrink for as much as before. What volumes grew to by themselves changes
// nothing, for that would take a restart.
func dataQuota(c *v1alpha1.EtcdCluster, d objects.Desired, inForce int64) int64 {
	if c.Spec.Quota != nil {
		return c.Spec.Quota.Value()
	}
	by, next := quotaVolume(c.Spec.Storage, d)
	if inForce == 0 || inForce >= shareOf(next) {
		// A volume that is as large cannot shrink, and data may need all of it. Less than
		// members may have would restart them, and could refuse their writes.
		return shareOf(next)
	}
	return shareOf(by)
}

// shareOf a volume that data may take, in bytes.
func shareOf(volume int64) int64 { return min(defaultQuota.Value(), volume/5*2) }

// quotaVolume is the size in bytes that the quota is a share of, and the one that it will be a
// share of once volumes have grown, or a declared size that is less than theirs is corrected. A
// change that is refused restarts no member, and space that is not there yet takes no data.
func quotaVolume(storage v1alpha1.StorageSpec, d objects.Desired) (by, next int64) {
	made := max(storage.Size.Value(), d.Template.Size.Value())
	by, next = math.MaxInt64, math.MaxInt64
	for _, v := range d.Volumes {
		if !v.Member {
			continue
		}
		by, next = min(by, v.Size.Value()), min(next, v.Size.Value())
		if !v.Capacity.IsZero() {
			by = min(by, v.Capacity.Value())
		}
	}
	switch {
	case next == math.MaxInt64:
		return storage.Size.Value(), storage.Size.Value()
	case storage.AutoGrow != nil:
		return min(by, made), min(next, made)
	case storage.Size.Value() < next: // refused
		by = min(by, made)
	}
	return by, next
}

// joinGrants admit pods with empty volumes: the seed until there is a cluster, and
// then members that the group counts and that never started.
func joinGrants(s objects.Set, d objects.Desired, g group) map[string]etcdapi.JoinGrant {
	seed := s.PodName(seedOrdinal)
	if d.SystemIdentifier == "" {
		return map[string]etcdapi.JoinGrant{seed: {MemberID: etcdapi.SeedMember, State: etcdapi.JoinNew,
			InitialCluster: map[string]string{seed: peerURL(s, seedOrdinal)}}}
	}
	if !g.led {
		return nil // only the leader's view is never behind
	}
	urls := map[string]string{}
	for n, m := range g.members {
		urls[s.PodName(n)] = m.PeerURL
	}
	for _, m := range g.strangers {
		urls[cmp.Or(m.Name, m.ID)] = m.PeerURL
	}
	out := map[string]etcdapi.JoinGrant{}
	for n, m := range g.members {
		if m.Name == "" {
			out[s.PodName(n)] = etcdapi.JoinGrant{MemberID: m.ID, State: etcdapi.JoinExisting, InitialCluster: urls}
		}
	}
	return out
}
