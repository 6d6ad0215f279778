//go:build apiserver

package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// needyMember lacks CPU and memory where a processor and 2Gi are requested.
func needyMember() *agentapi.Sizing {
	return &agentapi.Sizing{
		Seconds: 10 * 86400, CPU: 1800, MostCPU: 1900, Stalled: 0.2,
		Memory: 3100 * mib, MostMemory: 3200 * mib, MostHeld: 3900 * mib,
		Kills: 1, LastKill: time.Now().Add(-time.Hour).UTC().Truncate(time.Second), KillMemory: 3072 * mib,
	}
}

func modestMember() *agentapi.Sizing {
	return &agentapi.Sizing{Seconds: 10 * 86400, CPU: 700, MostCPU: 800, Memory: 1600 * mib, MostMemory: 1700 * mib, MostHeld: 2500 * mib}
}

// settledWithResources declares what such members compare with.
func (w *world) settledWithResources(replicas int32) (v1alpha1.Cluster, *operator) {
	w.t.Helper()
	c := w.cluster("orders", replicas)
	c.Common().Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Gi")},
	}
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	w.get(c)
	return c, o
}

// sized has members report what they measured of their containers.
func (w *world) sized(of map[string]*agentapi.Sizing) {
	w.simulation.change(func(s *simulation) { s.sized = of })
}

var resourceFields = []string{"spec.resources.limits.memory", "spec.resources.requests.memory", "spec.resources.requests.cpu"}

// awaitResources waits until all of them are recommended.
func (w *world) awaitResources(c v1alpha1.Cluster) []v1alpha1.RecommendationStatus {
	w.t.Helper()
	await(w, c, "resources are recommended", func(c v1alpha1.Cluster) bool { return len(c.CommonStatus().Recommendations) == len(resourceFields) })
	return slices.Clone(c.CommonStatus().Recommendations)
}

// What the member that needs most has measured of its container is recommended once, one
// recommendation per field. That the others need less, that members are silent, and an operator
// that is started anew, write nothing more, and no condition changes.
func TestRecommendedResources(t *testing.T) { eachKind(t, resourcesAreRecommended) }

func resourcesAreRecommended(t *testing.T, w *world) {
	c, o := w.settledWithResources(3)
	w.sized(map[string]*agentapi.Sizing{"orders-0": modestMember(), "orders-1": needyMember()})
	w.awaitQuiet(c, o)
	w.get(c)
	if list := c.CommonStatus().Recommendations; len(list) > 0 {
		t.Errorf("before every member has reported: %+v", list)
	}
	all := map[string]*agentapi.Sizing{"orders-0": modestMember(), "orders-1": needyMember(), "orders-2": modestMember()}
	w.sized(all)
	recorded := w.awaitResources(c)
	for n, r := range recorded {
		if r.Field != resourceFields[n] || r.Value == "" || !r.Restart || !strings.HasPrefix(r.Evidence, "orders-1 ") || r.Current != []string{"3Gi", "2Gi", "1"}[n] {
			t.Errorf("recommended is %+v", r)
		}
	}
	if computed := recorded[1].Computed; w.kind.name != "EtcdCluster" && len(computed) == 0 || w.kind.name == "EtcdCluster" && len(computed) > 0 {
		t.Errorf("with the request change %v", computed)
	}
	if !ready(c) {
		t.Error("a recommendation makes a cluster not ready")
	}
	w.awaitQuiet(c, o)
	more := needyMember()
	more.CPU, more.MostCPU, more.Seconds = 1850, 1950, 11*86400
	w.sized(map[string]*agentapi.Sizing{"orders-0": modestMember(), "orders-1": more, "orders-2": modestMember()})
	w.wantQuiet(c, o)
	w.sized(nil)
	w.wantQuiet(c, o)
	w.wantKept(c, o, recorded)
}

// Resources that are committed go at once, and are not recommended again. What is excluded is
// not recommended.
func TestRecommendedResourcesGo(t *testing.T) { eachKind(t, resourcesGo) }

func resourcesGo(t *testing.T, w *world) {
	c, o := w.settledWithResources(1)
	w.sized(map[string]*agentapi.Sizing{"orders-0": needyMember()})
	recorded := w.awaitResources(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Tuning.Exclude = []string{"requests.cpu"} })
	await(w, c, "the excluded one goes", func(c v1alpha1.Cluster) bool { return len(c.CommonStatus().Recommendations) == 2 })
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Tuning.Exclude = nil })
	w.awaitResources(c)
	edit(w, c, func(c v1alpha1.Cluster) {
		r := &c.Common().Resources
		r.Limits[corev1.ResourceMemory] = resource.MustParse(recorded[0].Value)
		r.Requests[corev1.ResourceMemory] = resource.MustParse(recorded[1].Value)
		r.Requests[corev1.ResourceCPU] = resource.MustParse(recorded[2].Value)
	})
	w.awaitNoneRecommended(c)
	w.awaitReady(c)
	w.awaitQuiet(c, o)
	w.get(c)
	if list := c.CommonStatus().Recommendations; len(list) > 0 {
		t.Errorf("recommended again: %+v", list)
	}
}
