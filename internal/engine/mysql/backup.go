package mysql

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// copyMemory is what a Job needs that copies: a server without clients.
const copyMemory = 512 << 20

// PlanCopy implements engine.Engine: a secondary is copied, where there is one. The Job has
// a certificate of its own, for an account that may do nothing else, and clones the member
// into a volume of its own. Which transactions the copy must have, the pod itself asks the
// members when it begins: it also leaves out the one that leads by then.
func (e *Engine) PlanCopy(c *v1alpha1.MySQLCluster, o memberset.Observation) engine.CopyPlan {
	s := membersOf(c)
	g := readGroup(s, o)
	var order []int
	for n := objects.MostMembers - 1; n >= 0; n-- {
		if n != g.leader && isCopyable(o, g, n) {
			order = append(order, n)
		}
	}
	if g.isLed() && isCopyable(o, g, g.leader) {
		order = append(order, g.leader)
	}
	switch {
	case len(order) == 0:
		return engine.CopyPlan{Waits: "no member serves in a group that has a primary"}
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

// isCopyable says whether the group counts a member as online, and its pod stays.
func isCopyable(o memberset.Observation, g group, n int) bool {
	return g.online[n] && memberset.IsReady(o.Pods[n]) && o.Pods[n].DeletionTimestamp == nil
}
