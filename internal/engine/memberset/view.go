package memberset

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// View is one pass's observation of the members beside what they should be. The
// judgement, the status and the steps read the same one, and what follows from
// the observation is computed once: how volumes grow, which members there are,
// and what they run.
type View struct {
	objects.Set
	Observed Observation
	// Desired is known once the engine has planned it: see SetDesired.
	Desired objects.Desired
	// Standings are the engine's, by ordinal.
	Standings map[int]Standing
	// UnfitAgents say why members will not serve with the agents that they have, by ordinal.
	// The engine sets them before SetDesired.
	UnfitAgents map[int]string
	// Now is the time of the pass.
	Now time.Time
	// Membership is which members there are, and Versions what they run.
	Membership Membership
	Versions   Versions

	growth growth
	// agentHold and ages are known with what is desired.
	agentHold agentHold
	ages      map[int]podAge
}

// NewView gathers what a pass has observed. The engine adds what is desired, and
// then the standings.
func NewView(s objects.Set, o Observation, now time.Time) View {
	return View{Set: s, Observed: o, Standings: map[int]Standing{}, Now: now,
		Membership: ReadMembership(s, o), Versions: ReadVersions(s, o), growth: planGrowth(s, o)}
}

// SetDesired adds what the members should be, and compares their pods to it: whether
// these are replaced decides on the image of their agents, and on the version of their
// template, which it sets. A copy of the view that was made before does not have it.
func (view *View) SetDesired(d *objects.Desired) {
	view.Desired = *d
	view.Membership = view.Membership.follow(d.Count)
	view.agentHold = view.findAgentHold()
	view.ages = comparePods(view)
	d.AgentImage = view.chooseAgentImage()
	view.Desired.AgentImage = d.AgentImage
	d.EarlierTemplate = view.keepsEarlierTemplate()
	view.Desired.EarlierTemplate = d.EarlierTemplate
}

// FindOutdated says why a pod must be replaced; empty when it need not be.
func (view *View) FindOutdated(ordinal int) string { return view.ages[ordinal].outdated }

// IsBootstrapped says whether there is a database system.
func (view *View) IsBootstrapped() bool {
	return view.Desired.SystemIdentifier != "" && view.Cluster.CommonStatus().Version != ""
}

// versionChanges says whether some member's pod runs another image than the desired.
func (view *View) versionChanges() bool {
	for n := range view.Desired.Count {
		if view.Versions.Members[n].differs(view.Desired) {
			return true
		}
	}
	return false
}

// CountServing is the number of members that answer.
func (view *View) CountServing() int {
	serving := 0
	for n := range view.Desired.Count {
		if m := view.Observed.Member(n); m != nil && m.Serving {
			serving++
		}
	}
	return serving
}

// Report is what status says of the members; the engine adds what it knows.
func (view *View) Report() engine.Report {
	r := engine.Report{
		Image: view.Desired.Image, SystemIdentifier: view.Desired.SystemIdentifier, Replicas: int32(len(view.Observed.Pods)),
		Selector: labels.SelectorFromSet(view.Selector()).String(),
	}
	r.Insights, _ = view.ReportInsights()
	r.Agent = view.reportAgent()
	if view.Desired.Minted.Complete {
		r.CredentialsSecret = view.Named(objects.SuffixApp)
	}
	for n := range view.Desired.Count {
		r.Members = append(r.Members, reportMember(view.Set, view.Observed, n, view.Standings[n]))
		if m := view.Observed.Member(n); m != nil && m.Serving && IsReady(view.Observed.Pods[n]) {
			r.ReadyReplicas++
		}
	}
	return r
}
