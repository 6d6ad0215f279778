package mysql

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// copyMemory is what a Job needs that copies: a server without clients.
const copyMemory = 512 << 20

// PlanCopy implements engine.Engine: a secondary is copied, where there is one. The Job has
// a certificate of its own, for an account that may do nothing else, and clones the member
// into a volume of its own. Which transactions the copy must have, the pod itself asks all
// members when it begins: it also leaves out the one that leads by then, and waits for one
// that lags.
func (e *Engine) PlanCopy(c *v1alpha1.MySQLCluster, o memberset.Observation) engine.CopyPlan {
	s := membersOf(c)
	g := readGroup(s, o)
	order := listOnline(o, g)
	switch {
	case len(order) == 0:
		return engine.CopyPlan{Waits: "no member serves in a group that has a primary"}
	case order[0] == g.leader && countOnline(g) > 1:
		return engine.CopyPlan{Waits: "the primary is not copied while another member is online, and no other can be copied now: it does not answer, or its pod is being deleted"}
	case isLeaving(o, order[0]):
		return engine.CopyPlan{Waits: "the only member's pod is being deleted"}
	case len(o.Minted.Internal[memberset.KeyCopierCert]) == 0:
		return engine.CopyPlan{Waits: "the certificate of the Jobs that copy is about to be made"}
	}
	var others []string
	if name := readReport(g.status).ReplicationName; name != "" && name != c.Status.SystemIdentifier {
		others = []string{name} // the group went on without lost members
	}
	return engine.CopyPlan{
		Program: containerName, Image: memberset.RunningImage(s, o.Pods[order[0]]), Sources: memberset.CopySources(s, order, Port),
		SystemIdentifier: c.Status.SystemIdentifier, OtherNames: others, Secret: s.Named(objects.SuffixTLS),
		Certificate: &engine.CertificateKeys{Secret: s.Named(objects.SuffixInternal), Certificate: memberset.KeyCopierCert, Key: memberset.KeyCopierKey},
		Scratch:     memberset.CopyScratch(s, o, order[0]), Memory: copyMemory, Expected: o.Member(order[0]).DataSize,
	}
}

// listOnline are the members that the group counts as online, the best to copy first: the
// secondaries, the primary, and secondaries whose pods are being deleted. The Job asks all
// of them for their transactions. One that lags is online, and not ready.
func listOnline(o memberset.Observation, g group) (order []int) {
	var leaving []int
	for n := objects.MostMembers - 1; n >= 0; n-- {
		switch {
		case n == g.leader || !g.online[n]:
		case isLeaving(o, n):
			leaving = append(leaving, n)
		default:
			order = append(order, n)
		}
	}
	if g.isLed() && g.online[g.leader] {
		order = append(order, g.leader)
	}
	return append(order, leaving...)
}

func isLeaving(o memberset.Observation, n int) bool {
	return o.Pods[n] == nil || o.Pods[n].DeletionTimestamp != nil
}

// countOnline is how many servers are online as the primary sees it, which is what the pod
// that copies goes by: also those that do not answer the operator.
func countOnline(g group) (online int) {
	for _, member := range readReport(g.status).View {
		if member.State == mysqlapi.StateOnline {
			online++
		}
	}
	return online
}
