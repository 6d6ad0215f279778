package etcd

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

// seedOrdinal is the member that begins a cluster.
const seedOrdinal = 0

// defaultQuota is etcd's own; small volumes hold less.
var defaultQuota = resource.MustParse("2Gi")

// planDesired is what the objects should be made from. Where the spec cannot be
// followed, what is there stays, and a Stalled fact says which field to correct.
// The second result says whether volumes and pods may be written at all.
func planDesired(c *v1alpha1.EtcdCluster, o Observation, g group, r recovery, before precaution) (objects.Desired, bool, []condition.Fact) {
	s := membersOf(c)
	d := memberset.PlanDesired(s, o.Observation)
	var facts []condition.Fact
	memberset.FollowPatch(s, &d, o.Observation, specImage(c, o.Settings), firstImage(c, o))
	if reason, message := versionRefused(c, o); reason != "" {
		facts = append(facts, memberset.StalledFact(reason, "%s", message))
		memberset.KeepImage(s, &d, o.Observation)
	}
	if logsWait(c, o) || before.holds {
		memberset.KeepImage(s, &d, o.Observation)
	}
	d.Count = countMembers(c, o, g)
	writable, faults := memberset.DesireVolumes(s, &d, o.Observation)
	d.Config = clusterConfig(c, d, g, r)
	return d, writable, slices.Concat(facts, before.facts, faults)
}

// countMembers is the number of members that have a pod. The membership leads, and the pods follow:
// a pod appears when its member was admitted, and goes when it was removed. A
// member that is to be replaced keeps its pod; so does one that ran, while no
// member leads: its claim may be a new one that does not say yet whose it is, and
// without its pod it would never be known what has become of its data.
func countMembers(c *v1alpha1.EtcdCluster, o Observation, g group) int {
	have := o.Membership()
	if !g.led {
		return max(1, g.countStarted(), have)
	}
	return max(1, g.countOrdinals(), min(c.Spec.DesiredReplicas(), have))
}

// clusterConfig is the configuration of the members.
func clusterConfig(c *v1alpha1.EtcdCluster, d objects.Desired, g group, r recovery) []byte {
	s := membersOf(c)
	config := memberset.BaseConfig(s, d)
	config.Parameters = c.Spec.Parameters
	config.DataLimit = dataQuota(c, d)
	config.JoinGrants = joinGrants(s, d, g)
	config.Recovery = r.request
	return memberset.RenderConfig(config)
}

// dataQuota in bytes. A volume that cannot be as large as declared has space for
// less; one that grew by itself changes nothing, for that would take a restart.
func dataQuota(c *v1alpha1.EtcdCluster, d objects.Desired) int64 {
	if c.Spec.Quota != nil {
		return c.Spec.Quota.Value()
	}
	size := c.Spec.Storage.Size.Value()
	for _, v := range d.Volumes {
		if v.Member {
			size = min(size, v.Size.Value())
		}
	}
	return min(defaultQuota.Value(), size/5*2)
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

// specImage that a version maps to.
func specImage(c *v1alpha1.EtcdCluster, s objects.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":v" + c.Spec.Version
}

// firstImage is what to pull for the declared version until its build is pinned.
// A minor version alone is no tag of etcd's: it is the newest patch that is known,
// or a newer one that runs.
func firstImage(c *v1alpha1.EtcdCluster, o Observation) string {
	asked := specImage(c, o.Settings)
	want, ok := etcdversion.ParseDeclared(c.Spec.Version)
	if c.Spec.Image != "" || !ok || want.Patch != etcdversion.Open {
		return asked
	}
	patch, known := etcdversion.NewestPatch(want.Minor)
	if !known {
		return asked
	}
	if running, ok := etcdversion.Parse(runningVersion(c, o)); ok && running.Minor == patch.Minor && patch.IsBefore(running) {
		patch = running
	}
	return o.Settings.ImageRepository + ":v" + patch.String()
}

// versionRefused says why the declared version cannot follow the running one.
func versionRefused(c *v1alpha1.EtcdCluster, o Observation) (reason, message string) {
	running := runningVersion(c, o)
	have, ok := etcdversion.Parse(running)
	want, wanted := etcdversion.ParseDeclared(c.Spec.Version)
	if !ok || !wanted {
		return "", ""
	}
	if want.Minor != have.Minor && ownImageRuns(c, o) {
		return v1alpha1.ReasonVersionMismatch, fmt.Sprintf(
			"spec.image %q holds etcd %s, and spec.version is %q: name an image of etcd 3.%d in spec.image, or set spec.version to \"3.%d\"", c.Spec.Image, running, c.Spec.Version, want.Minor, have.Minor)
	}
	switch obstacle, first := etcdversion.FindObstacle(have, want); obstacle {
	case etcdversion.Older:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s, and etcd does not go back: set spec.version to %q or newer", c.Spec.Version, running, running)
	case etcdversion.Patch:
		return v1alpha1.ReasonUpgradePath, fmt.Sprintf(
			"spec.version %q takes over data of %s or later only, and %s runs: set spec.version to %q or a later 3.%d first",
			c.Spec.Version, first, running, first, first.Minor)
	case etcdversion.Minor:
		return v1alpha1.ReasonUpgradePath, fmt.Sprintf(
			"spec.version %q is more than one minor version ahead of the running %s: set spec.version to \"3.%d\" first", c.Spec.Version, running, first.Minor)
	}
	return "", ""
}

// ownImageRuns says whether every pod was made from the image that spec.image
// names: then another version takes another image.
func ownImageRuns(c *v1alpha1.EtcdCluster, o Observation) bool {
	for _, pod := range o.Pods {
		if c.Spec.Image == "" || pod.Annotations[v1alpha1.AnnotationImage] != c.Spec.Image {
			return false
		}
	}
	return len(o.Pods) > 0
}

// logsWait says whether a member must be restarted as it is before the next
// minor version takes over its data.
func logsWait(c *v1alpha1.EtcdCluster, o Observation) bool {
	have, _ := etcdversion.Parse(runningVersion(c, o))
	want, _ := etcdversion.ParseDeclared(c.Spec.Version)
	for n := range o.Pods {
		if m := o.Member(n); m != nil && slices.Contains(m.PendingRestart, etcdapi.PendingLog) {
			return want.Minor > have.Minor
		}
	}
	return false
}

// runningVersion is the oldest that a member runs: the cluster as a whole is at
// that one, and may go back to it while an upgrade is under way.
func runningVersion(c *v1alpha1.EtcdCluster, o Observation) string {
	oldest, all := "", true
	consider := func(text string) {
		v, ok := etcdversion.Parse(text)
		if before, known := etcdversion.Parse(oldest); ok && (!known || v.IsBefore(before)) {
			oldest = text
		}
	}
	for n := range objects.MostMembers {
		if o.Pods[n] == nil && n >= o.Membership() {
			continue
		}
		if m := o.Member(n); m != nil && o.Pods[n].DeletionTimestamp == nil && m.Serving {
			consider(m.Version)
		} else {
			all = false
		}
	}
	if !all || oldest == "" {
		consider(c.Status.Version) // a member that does not answer may run what ran before
	}
	return oldest
}
