//go:build e2e && soak

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// checkRefused tries what the plan says is refused, and takes it back. No member notices.
func (c *committed) checkRefused(e edit, p timedPlan, next *unstructured.Unstructured) {
	c.t.Helper()
	said := slices.ContainsFunc(p.Clusters[0].Refused, func(f refusal) bool { return f.Reason == e.refused })
	if !said {
		c.t.Errorf("the plan refuses it as %+v, want %s", p.Clusters[0].Refused, e.refused)
	}
	pods := c.allIncarnations()
	err := c.apply(next)
	if e.refused == refusedByServer {
		if err == nil {
			c.t.Error("the API server takes it")
		}
		return
	}
	must(c.t, err, "make the edit")
	if e.other != "" {
		c.awaitNamesakeRefused(next, e.refused)
	} else {
		c.waitStalled(e.stalled)
		must(c.t, c.apply(c.manifest(c.spec, c.requests)), "take the edit back")
	}
	if e.claims > 0 {
		must(c.t, env.client.Delete(c.t.Context(), c.quotaOfClaims()), "delete the quota")
	}
	c.waitReady()
	if now := c.allIncarnations(); now != pods {
		c.t.Errorf("what is refused touched the members:\n%s\nbefore\n%s", now, pods)
	}
}

// awaitNamesakeRefused waits until a cluster of another kind is stalled for a reason, and
// deletes it.
func (c *committed) awaitNamesakeRefused(u *unstructured.Unstructured, reason string) {
	c.t.Helper()
	eventually(c.t, stalledTimeout, "the cluster of another kind is stalled", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, one := range conditions {
			if fields, is := one.(map[string]any); is && fields["type"] == v1alpha1.ConditionStalled && fields["reason"] == reason {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v: %w", conditions, err)
	})
	takeAway(c.t, u)
}

// checkMade makes an edit, and compares what happens with the plan. It returns what to
// print of it.
func (c *committed) checkMade(e edit, p timedPlan, next *unstructured.Unstructured, r *planComparison) string {
	c.t.Helper()
	began := time.Now()
	generation, mark := c.getCluster().GetGeneration(), c.markPlace()
	led, claims, changes := c.getCluster().CommonStatus().Primary, c.readClaims(), c.followPods()
	recorded := c.getCluster().CommonStatus().WritePauses
	if c.writer != nil {
		c.writer.takeGap()
	}
	must(c.t, c.apply(next), "make the edit")
	suspended, _, _ := unstructured.NestedBool(next.Object, "spec", "suspend")
	c.awaitMade(e, generation, suspended)
	wantEnded, wantBegun := p.podsThatEnd(), p.podsThatBegin()
	eventually(c.t, podTimeout, "the pods change as planned", func(context.Context) error {
		ended, begun := changes.listChanges()
		if !slices.Equal(ended, wantEnded) || !sameNames(begun, wantBegun) {
			return fmt.Errorf("ended: %v, planned %v; begun: %v, planned %v", ended, wantEnded, begun, wantBegun)
		}
		return nil
	})
	c.compareClaims(p, claims)
	if got, want := c.countLeaders(led, mark), p.successions(); got != want {
		c.t.Errorf("another member led %d times, planned %d", got, want)
	}
	return fmt.Sprintf("  done in %5.1f s  ended %v begun %v%s", time.Since(began).Seconds(), wantEnded, wantBegun, c.comparePauses(p, recorded, r))
}

// podsThatEnd are those of restarts and of members that leave, in order.
func (p planned) podsThatEnd() []string {
	var names []string
	for _, s := range p.Clusters[0].Steps {
		if s.Kind == "MemberRestarts" || s.Kind == "MemberLeaves" {
			names = append(names, s.Members...)
		}
	}
	return names
}

// podsThatBegin are those of restarts and of members that join.
func (p planned) podsThatBegin() []string {
	return slices.Concat(p.membersOf("MembersJoin"), p.membersOf("MemberRestarts"))
}

// successions is how often another member leads.
func (p planned) successions() int {
	n := 0
	for _, s := range p.Clusters[0].Steps {
		if s.WritesPause && s.Successor {
			n++
		}
	}
	return n
}

// awaitMade waits until an edit is rolled out, or observed by an operator that does no more.
func (c *committed) awaitMade(e edit, generation int64, suspended bool) {
	c.t.Helper()
	switch {
	case suspended:
		c.waitFor(revertTimeout, "the operator has observed the edit", func(obj v1alpha1.Cluster) error {
			if st := obj.CommonStatus(); st.Phase != v1alpha1.ReasonSuspended || st.ObservedGeneration <= generation {
				return fmt.Errorf("%s, observed generation %d", st.Phase, st.ObservedGeneration)
			}
			return nil
		})
	case e.switchover != "":
		c.waitFor(readyTimeout, "the request is carried out", func(obj v1alpha1.Cluster) error {
			for _, one := range obj.CommonStatus().Requests {
				if one.ID == e.switchover && one.Result != "" {
					return rolledOut(obj)
				}
			}
			return fmt.Errorf("requests: %+v", obj.CommonStatus().Requests)
		})
	default:
		c.waitFor(readyTimeout, "the edit is rolled out", func(obj v1alpha1.Cluster) error {
			if now := obj.CommonStatus().RolledOut; now == nil || now.Generation <= generation {
				return fmt.Errorf("rolled out: %+v: %w", now, rolledOut(obj))
			}
			return rolledOut(obj)
		})
	}
}

// countLeaders is how often the status named another member as the leader than before,
// since a place in the history at which one led.
func (c *committed) countLeaders(led string, mark int) int {
	n := 0
	for _, obj := range c.sinceMark(mark) {
		if now := obj.CommonStatus().Primary; now != "" && now != led {
			led = now
			n++
		}
	}
	return n
}

// readClaims are the sizes of the cluster's volumes, by name.
func (c *committed) readClaims() map[string]string {
	c.t.Helper()
	var list corev1.PersistentVolumeClaimList
	must(c.t, env.client.List(c.t.Context(), &list, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.name}), "list the volumes")
	sizes := map[string]string{}
	for _, v := range list.Items {
		sizes[v.Name] = v.Spec.Resources.Requests.Storage().String()
	}
	return sizes
}

// compareClaims waits until the volumes are those from before with what the plan says
// becomes of them.
func (c *committed) compareClaims(p timedPlan, before map[string]string) {
	c.t.Helper()
	want := maps.Clone(before)
	for _, s := range p.Clusters[0].Steps {
		for _, name := range s.Volumes {
			switch s.Kind {
			case "VolumeCreated", "VolumesGrow":
				want[name] = s.To
			case "VolumeDeleted":
				delete(want, name)
			}
		}
	}
	// A difference is no reason not to make the edits that follow.
	diff := cmp.Diff(want, c.readClaims())
	for end := time.Now().Add(revertTimeout); diff != "" && time.Now().Before(end); diff = cmp.Diff(want, c.readClaims()) {
		time.Sleep(pollInterval)
	}
	if diff != "" {
		c.t.Errorf("volumes (-planned +is)\n%s", diff)
	}
}

// planDeletion plans a commit that leaves the cluster out, by the inventory of a
// Kustomization, and deletes it as Flux would.
func (c *committed) planDeletion(r *planComparison) {
	c.t.Helper()
	needFlux(c.t)
	c.waitReady()
	c.recordInventory()
	p := c.plan(1, "", "--kustomization", c.namespace+"/shop")
	r.addPlan(p)
	r.rows = append(r.rows, fmt.Sprintf("%-38s plan %.2f s", "deletion", p.took.Seconds()))
	var kept []string
	for _, s := range p.Clusters[0].Steps {
		switch s.Kind {
		case "ClusterDeleted":
			if want := c.podNames(); !sameNames(s.Members, want) {
				c.t.Errorf("the pods %v end by the plan, and there are %v", s.Members, want)
			}
		case "VolumeKept":
			kept = append(kept, s.Volumes...)
		default:
			c.t.Errorf("the plan has %+v", s)
		}
	}
	if p.Clusters[0].Action != "delete" {
		c.t.Errorf("the plan: %s", p.Clusters[0].Action)
	}
	declared := c.manifest(nil, nil)
	must(c.t, env.client.Delete(c.t.Context(), declared), "delete what is declared")
	eventually(c.t, goneTimeout, "the pods and the cluster are gone", func(ctx context.Context) error {
		pods, err := memberPods(ctx, c.namespace, c.name)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are there", len(pods))
		}
		return err
	})
	time.Sleep(settlePeriod) // for what garbage collection would still delete
	if now := slices.Collect(maps.Keys(c.readClaims())); !sameNames(now, kept) {
		c.t.Errorf("the volumes %v stay, planned %v", now, kept)
	}
}

func (c *committed) podNames() []string {
	c.t.Helper()
	var names []string
	for _, pod := range c.listPods() {
		names = append(names, pod.Name)
	}
	return names
}

// recordInventory makes a Kustomization whose inventory has what is declared. It is
// suspended: Flux does nothing with it.
func (c *committed) recordInventory() {
	c.t.Helper()
	u := fluxObject(kustomizeAPI, "Kustomization", c.namespace, "shop")
	u.Object["spec"] = map[string]any{
		"suspend": true, "prune": true, "interval": "1h", "path": "./", "sourceRef": map[string]any{"kind": "GitRepository", "name": "shop"},
	}
	must(c.t, env.client.Create(c.t.Context(), u), "create a Kustomization")
	c.t.Cleanup(func() { takeAway(c.t, u) })
	patch := fmt.Appendf(nil, `{"status":{"inventory":{"entries":[{"id":"%s_%s_%s_%s","v":"v1alpha1"}]}}}`, c.namespace, c.name, v1alpha1.GroupVersion.Group, c.declares)
	must(c.t, env.client.Status().Patch(c.t.Context(), u, client.RawPatch("application/merge-patch+json", patch)), "write the inventory")
}
