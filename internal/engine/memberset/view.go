package memberset

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// View is one pass's observation of the members beside what they should be. The
// judgement, the status and the steps read the same one, and what is computed of
// it, such as how volumes grow, is computed once.
type View struct {
	objects.Set
	Observed Observation
	Desired  objects.Desired
	// Standings are the engine's, by ordinal.
	Standings map[int]Standing
	// Now is the time of the pass.
	Now time.Time

	growth growth
}

// NewView gathers what a pass knows. The engine adds the standings.
func NewView(s objects.Set, o Observation, d objects.Desired, now time.Time) View {
	return View{Set: s, Observed: o, Desired: d, Standings: map[int]Standing{}, Now: now, growth: planGrowth(s, o)}
}

// IsBootstrapped says whether there is a database system.
func (view *View) IsBootstrapped() bool {
	return view.Desired.SystemIdentifier != "" && view.Cluster.CommonStatus().Version != ""
}

// versionChanges says whether some pod runs another image than the desired.
func (view *View) versionChanges() bool {
	for n := range view.Desired.Count {
		if pod := view.Observed.Pods[n]; pod != nil {
			if ctr := findContainer(view.Set, pod.Spec); ctr != nil && ctr.Image != view.Desired.Image && ctr.Image != view.Desired.Pull && cmp.Or(pod.Annotations[v1alpha1.AnnotationImage], ctr.Image) != view.Desired.Asked {
				return true
			}
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
