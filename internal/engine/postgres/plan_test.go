package postgres

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// outcome is a plan in the words of a table: the step as "Type target", the
// facts as "Type/Reason", the count of members that the objects declare.
type outcome struct {
	Step  string
	Facts []string
	Count int
}

func outcomeOf(p engine.Plan) outcome {
	var out outcome
	out.Step = judgeStep(p.Step)
	reported := map[string]bool{}
	for _, f := range p.Facts {
		text := f.Type + "/" + f.Reason
		if !reported[text] {
			out.Facts = append(out.Facts, text)
		}
		reported[text] = true
	}
	for _, obj := range p.Objects {
		if set := statefulSetOf(obj); set != nil {
			out.Count = int(*set.Spec.Replicas)
		}
	}
	return out
}

func judgeStep(s *engine.Step) string {
	if s == nil {
		return ""
	}
	return s.Type + " " + s.Target
}

func TestPlan(t *testing.T) {
	available := "Available/Available"
	down := "Available/PrimaryUnavailable"
	cases := []struct {
		name  string
		world func(t *testing.T) *world
		want  outcome
	}{
		{"a new cluster first gets its credentials, and no pods yet",
			func(t *testing.T) *world { return newWorld(t, 3) },
			outcome{"MintCredentials orders-internal", []string{"Reconciling/Creating", down}, 0}},
		{"a cluster whose secrets exist gets all its members at once",
			func(t *testing.T) *world { w := newWorld(t, 3); w.mintSecrets(); return w },
			outcome{"", []string{"Reconciling/Creating", down}, 3}},
		{"a settled cluster needs nothing",
			func(t *testing.T) *world { return settled(t, 3) },
			outcome{"", []string{available}, 3}},
		{"growing starts the new members at once and goes on serving",
			func(t *testing.T) *world { w := settled(t, 1); w.declareReplicas(3); return w },
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingUp", available}, 3}},
		{"a new member that copies is syncing",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.status(1).State, w.status(1).Serving = agentapi.StateCloning, false
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", available}, 2}},
		{"a replica that streams and is behind no Service updates endpoints",
			func(t *testing.T) *world { w := settled(t, 2); delete(w.o.ServicePods[suffixRO], "orders-1"); return w },
			outcome{"", []string{"Reconciling/UpdatingEndpoints", available}, 2}},
		{"shrinking goes one member at a time, from the highest ordinal",
			func(t *testing.T) *world { w := settled(t, 5); w.declareReplicas(2); return w },
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingDown", available}, 4}},
		{"shrinking waits until the member before has left",
			func(t *testing.T) *world {
				w := settled(t, 5)
				w.declareReplicas(2)
				w.volume(4, false)
				return w
			},
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingDown", available}, 4}},
		{"a volume of a former member is kept",
			func(t *testing.T) *world { w := settled(t, 2); w.volume(2, false); return w },
			outcome{"", []string{available}, 2}},
		{"a volume of a former member goes when the spec says Delete",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.status(0).ConfigHash, w.status(1).ConfigHash = hashNow(w), hashNow(w)
				w.addFormerVolume(2, v1alpha1.DeletionDelete)
				return w
			},
			outcome{"DeleteVolume data-orders-2", []string{available, "Reconciling/ScalingDown"}, 2}},
		{"a volume of a former member stays while its pod is there, even under Delete",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.status(0).ConfigHash, w.status(1).ConfigHash = hashNow(w), hashNow(w)
				w.addFormerVolume(2, v1alpha1.DeletionDelete)
				w.pod(2)
				return w
			},
			outcome{"", []string{"Reconciling/ScalingDown", available}, 2}},
		{"a pod that lost its labels gets them back first",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				delete(w.o.Pods[1].Labels, v1alpha1.LabelCluster)
				return w
			},
			outcome{"RestorePodLabels orders-1", []string{"Reconciling/Restarting", available}, 3}},
		{"but not where drift is only reported",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.Drift.Mode = v1alpha1.DriftReport
				delete(w.o.Pods[1].Labels, v1alpha1.LabelCluster)
				return w
			},
			outcome{"", []string{available}, 3}},
		{"outdated pods are replaced from the highest ordinal",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				return w
			},
			outcome{"ReplaceMember orders-2", []string{"Reconciling/Restarting", available}, 3}},
		{"the next outdated pod waits while a member is away",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				w.removePod(2)
				return w
			},
			outcome{"", []string{"Reconciling/Restarting", "Reconciling/ScalingUp", available}, 3}},
		{"the primary is replaced last",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				w.member(1)
				w.member(2)
				return w
			},
			outcome{"ReplaceMember orders-0", []string{"Reconciling/Restarting", available}, 3}},
		{"a replica restarts for a setting that needs it",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.status(1).PendingRestart = []string{"shared_buffers"}
				return w
			},
			outcome{"ReplaceMember orders-1", []string{"Reconciling/Restarting", available}, 2}},
		{"a replica that waits for the primary's smaller setting does not keep the primary from taking it up",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.status(0).PendingRestart = []string{"max_connections"}
				w.status(1).WaitsForPrimary = []string{"max_connections"}
				return w
			},
			outcome{"ReplaceMember orders-0", []string{"Reconciling/Restarting", "Reconciling/Configuring", available}, 2}},
		{"an outdated pod whose image cannot be had is replaced at once, so that fixing the spec fixes the cluster",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.c.Spec.Version = "17.99"
				w.pod(1)
				w.setWaiting(1, "ImagePullBackOff")
				w.c.Spec.Version = "17"
				return w
			},
			outcome{"ReplaceMember orders-1", []string{"Degraded/MemberDown", "Reconciling/ScalingUp", available}, 2}},
		{"before the template has the corrected spec, nothing stalls",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.c.Spec.Version = "17.99"
				w.pod(1)
				w.setWaiting(1, "ImagePullBackOff")
				w.o.StatefulSet.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationRollout: w.o.Pods[1].Annotations[v1alpha1.AnnotationRollout]}
				w.c.Spec.Version = "17"
				return w
			},
			outcome{"", []string{"Degraded/MemberDown", "Reconciling/ScalingUp", available}, 2}},
		{"an image that does not exist stalls, and the others keep serving",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.c.Spec.Version = "17.99"
				w.pod(1)
				w.setWaiting(1, "ImagePullBackOff")
				return w
			},
			outcome{"", []string{"Stalled/ImageUnavailable", "Degraded/MemberDown", "Reconciling/Upgrading", "Reconciling/ScalingUp", available}, 2}},
		{"a pod that never started with an older agent is replaced",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.setWaiting(1, "CrashLoopBackOff")
				w.o.Pods[1].Spec.InitContainers[0].Image = "holdfast:broken"
				return w
			},
			outcome{"ReplaceMember orders-1", []string{"Degraded/MemberDown", "Reconciling/ScalingUp", available}, 2}},
		{"an older agent that serves is left alone",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.o.Pods[1].Spec.InitContainers[0].Image = "holdfast:older"
				return w
			},
			outcome{"", []string{available}, 2}},
		{"a downgrade stalls and changes nothing",
			func(t *testing.T) *world { w := settled(t, 2); w.c.Spec.Version = "15"; return w },
			outcome{"", []string{"Stalled/DowngradeRefused", available}, 2}},
		{"an older minor version is rolled out as a newer one is",
			func(t *testing.T) *world { w := settled(t, 2); w.c.Spec.Version = "17.3"; return w },
			outcome{"ReplaceMember orders-1", []string{"Reconciling/Upgrading", available}, 2}},
		{"a new major version stalls and changes nothing",
			func(t *testing.T) *world { w := settled(t, 2); w.c.Spec.Version = "18"; return w },
			outcome{"", []string{"Stalled/MajorUpgradeUnsupported", available}, 2}},
		{"a smaller volume stalls and changes nothing",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.c.Spec.Storage.Size = resource.MustParse("512Mi")
				w.status(0).ConfigHash = hashNow(w)
				return w
			},
			outcome{"", []string{"Stalled/StorageShrinkRefused", available}, 1}},
		{"a volume that cannot grow stalls",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.o.Volumes[0].Spec.StorageClassName = new("fixed")
				w.c.Spec.Storage.Size = resource.MustParse("2Gi")
				w.status(0).ConfigHash = hashNow(w)
				return w
			},
			outcome{"", []string{"Stalled/StorageNotExpandable", available}, 1}},
		{"a growing volume is under way until it has its size",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.c.Spec.Storage.Size = resource.MustParse("2Gi")
				w.status(0).ConfigHash = hashNow(w)
				return w
			},
			outcome{"", []string{"Reconciling/Resizing", available}, 1}},
		{"an unknown storage class writes nothing that could not be fixed later",
			func(t *testing.T) *world {
				w := newWorld(t, 1)
				w.mintSecrets()
				w.c.Spec.Storage.StorageClass = "fast"
				return w
			},
			outcome{"", []string{"Stalled/StorageClassMissing", "Reconciling/Creating", down}, 0}},
		{"a parameter that PostgreSQL refuses stalls, and the database goes on",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.status(0).ConfigError = "max_connectionz: unrecognized configuration parameter"
				w.status(0).ConfigHash = "old"
				return w
			},
			outcome{"", []string{"Stalled/InvalidParameter", available}, 1}},
		{"data of another major version stalls",
			func(t *testing.T) *world {
				w := settled(t, 1)
				m := w.status(0)
				m.State, m.Hold, m.Serving, m.Role = agentapi.StateHeld, agentapi.HoldDataVersion, false, v1alpha1.RoleMember
				w.o.ServicePods[suffixRW] = map[string]bool{}
				return w
			},
			outcome{"", []string{"Stalled/DataVersionMismatch", "Degraded/MemberDown", "Reconciling/MemberDown", down}, 1}},
		{"a replica that has no disk space for a copy stalls with what it needs, and the primary serves",
			func(t *testing.T) *world { return held(t, 1, agentapi.HoldVolumeFull) },
			outcome{"", []string{"Stalled/VolumeFull", "Degraded/MemberDown", "Reconciling/MemberDown", available}, 2}},
		{"a primary whose volume is an older one stalls and takes no writes",
			func(t *testing.T) *world { return held(t, 0, agentapi.HoldDataStale) },
			outcome{"", []string{"Stalled/DataStale", "Degraded/MemberDown", "Reconciling/MemberDown", down}, 2}},
		{"a replica that is ahead of the primary stalls",
			func(t *testing.T) *world { return held(t, 1, agentapi.HoldDataDiverged) },
			outcome{"", []string{"Stalled/DataDiverged", "Degraded/MemberDown", "Reconciling/MemberDown", available}, 2}},
		{"a replica that is ahead of the primary is not scaled away with its volume",
			func(t *testing.T) *world {
				w := held(t, 1, agentapi.HoldDataDiverged)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.declareReplicas(1)
				return w
			},
			outcome{"", []string{"Stalled/DataDiverged", "Degraded/MemberDown", "Reconciling/Configuring", "Reconciling/MemberDown", "Reconciling/ScalingDown", available}, 2}},
		{"nor when its member is not heard any more",
			func(t *testing.T) *world {
				w := held(t, 1, agentapi.HoldDataDiverged)
				obeyVolume(t, w, 1)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.declareReplicas(1)
				w.o.Members["orders-1"] = agentclient.Observation{}
				w.o.Pods[1].Status.Conditions = nil
				return w
			},
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingUp", "Reconciling/ScalingDown", available}, 2}},
		{"nor when the policy became Delete after it was scaled away",
			func(t *testing.T) *world {
				w := held(t, 1, agentapi.HoldDataDiverged)
				obeyVolume(t, w, 1)
				w.removePod(1)
				delete(w.o.Volumes[1].Labels, v1alpha1.LabelMember)
				w.declareReplicas(1)
				d, _, _ := w.desired()
				w.status(0).ConfigHash = agentapi.HashConfig(d.Config)
				obeyVolume(t, w, 1)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				d, _, _ = w.desired()
				w.status(0).ConfigHash = agentapi.HashConfig(d.Config)
				return w
			},
			outcome{"", []string{available}, 1}},
		{"a member that does not answer is not asked to be replaced",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.o.Members["orders-1"] = agentclient.Observation{Err: "timeout"}
				return w
			},
			outcome{"", []string{"Degraded/MemberDown", "Reconciling/MemberUnreachable", available}, 2}},
		{"a StatefulSet that was not taken up yet is under way",
			func(t *testing.T) *world { w := settled(t, 1); w.o.StatefulSet.Generation = 2; return w },
			outcome{"", []string{"Reconciling/Progressing", available}, 1}},
		{"a member whose volume is being deleted is not restarted",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				w.o.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now}
				return w
			},
			outcome{"", []string{"Degraded/DataMissing", "Reconciling/Restarting", available}, 1}},
		{"the last copies are kept while no member is primary, even under Delete",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.declareReplicas(1)
				w.removePod(0)
				return w
			},
			outcome{"", []string{"Reconciling/ScalingUp", "Reconciling/Configuring", "Reconciling/ScalingDown", down}, 3}},
		{"a volume of a former member stays while no member is primary, even under Delete",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.volume(1, false)
				w.removePod(0)
				return w
			},
			outcome{"", []string{"Reconciling/ScalingUp", down}, 1}},
		{"a storage class that is gone does not stop the care of a living cluster",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.c.Spec.Storage.StorageClass = "standard"
				delete(w.o.StorageClasses, "standard")
				return w
			},
			outcome{"", []string{"Stalled/StorageClassMissing", available}, 1}},
		{"nothing is judged before members that are ready were asked",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.o.Asking = true
				delete(w.o.Members, "orders-1")
				return w
			},
			outcome{"", nil, 2}},
		{"a member that is not ready is judged before it was asked",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.o.Asking = true
				delete(w.o.Members, "orders-1")
				w.o.Pods[1].Status.Conditions = nil
				return w
			},
			outcome{"", []string{"Reconciling/ScalingUp", available}, 2}},
		{"a stopping pod is waited for, not replaced twice",
			func(t *testing.T) *world {
				w := settled(t, 2)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				w.o.Pods[1].DeletionTimestamp = &metav1.Time{Time: now}
				return w
			},
			outcome{"", []string{"Reconciling/Restarting", available}, 2}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.world(t)
			if diff := cmp.Diff(tc.want, outcomeOf(w.plan())); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// held is a settled cluster of two with one member that is held down.
func held(t *testing.T, ordinal int, hold agentapi.Hold) *world {
	w := settled(t, 2)
	m := w.status(ordinal)
	m.State, m.Hold, m.Serving, m.Role = agentapi.StateHeld, hold, false, v1alpha1.RoleMember
	if ordinal == 0 {
		w.o.ServicePods[suffixRW] = map[string]bool{}
	}
	return w
}

// hashNow is the hash of the configuration as the world would render it.
func hashNow(w *world) string {
	d, _, _ := w.desired()
	return agentapi.HashConfig(d.Config)
}

// A message without a field or a remedy does not help.
func TestStalledNamesFieldAndRemedy(t *testing.T) {
	cases := map[string]struct {
		change func(w *world)
		want   []string
	}{
		"downgrade":    {func(w *world) { w.c.Spec.Version = "15" }, []string{"spec.version", "17.4"}},
		"major":        {func(w *world) { w.c.Spec.Version = "18" }, []string{"spec.version", "\"17.4\" again"}},
		"shrink":       {func(w *world) { w.c.Spec.Storage.Size = resource.MustParse("100Mi") }, []string{"spec.storage.size", "at least 1Gi"}},
		"class change": {func(w *world) { w.c.Spec.Storage.StorageClass = "fixed" }, []string{"spec.storage.storageClass", `set it to "standard"`}},
		"class missing": {func(w *world) { w.c.Spec.Storage.StorageClass = "fast" },
			[]string{"spec.storage.storageClass", "does not exist"}},
		"bootstrap": {func(w *world) { w.c.Spec.Bootstrap.Database = "app"; w.reportFirstDatabase("shop", "app", "") }, []string{"spec.bootstrap", "\"shop\"", "SQL"}},
		"parameter": {func(w *world) { w.status(0).ConfigError = "x: bad" }, []string{"spec.parameters", "x: bad"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 1)
			tc.change(w)
			message := ""
			for _, f := range w.plan().Facts {
				if f.Type == v1alpha1.ConditionStalled {
					message += f.Message
				}
			}
			for _, want := range tc.want {
				if !strings.Contains(message, want) {
					t.Errorf("message %q does not hold %q", message, want)
				}
			}
		})
	}
}

// Secrets never stand in what is shown.
func TestSecretsStayOutOfFactsAndReport(t *testing.T) {
	w := settled(t, 1)
	w.o.Minted.Internal[keyAppPassword] = []byte("hunter2hunter2")
	p := w.plan()
	if text := cmp.Diff(nil, p.Facts) + cmp.Diff(nil, p.Report); strings.Contains(text, "hunter2") {
		t.Errorf("the password is shown: %s", text)
	}
}

// The initialization guard comes from status, from any volume, or from the first
// member; each alone is enough.
func TestInitializationGuard(t *testing.T) {
	const id = "7300000000000000001"
	sources := map[string]func(w *world){
		"status": func(w *world) { w.c.Status.SystemIdentifier = id },
		"volume": func(w *world) {
			w.volume(2, false).Annotations = map[string]string{v1alpha1.AnnotationSystemIdentifier: id}
		},
		"first member": func(w *world) { w.member(0).SystemIdentifier = id },
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.mintSecrets()
			source(w)
			if got := memberset.PlanDesired(w.view()).SystemIdentifier; got != id {
				t.Errorf("system identifier %q, want %q", got, id)
			}
		})
	}
	t.Run("a replica's report is not enough for a bootstrap", func(t *testing.T) {
		w := newWorld(t, 2)
		w.mintSecrets()
		w.member(1).SystemIdentifier = id
		if got := memberset.PlanDesired(w.view()).SystemIdentifier; got != "" {
			t.Errorf("system identifier %q from a replica", got)
		}
	})
}

// A volume keeps its size and class whatever the spec says, except to grow.
func TestVolumesNeverShrink(t *testing.T) {
	for _, size := range []string{"64Mi", "1Gi", "5Gi"} {
		w := settled(t, 2)
		w.c.Spec.Storage.Size = resource.MustParse(size)
		d, _, _ := w.desired()
		for _, v := range d.Volumes {
			live := w.o.Volumes[v.Ordinal].Spec.Resources.Requests[corev1.ResourceStorage]
			if v.Size.Cmp(live) < 0 {
				t.Errorf("size %s: volume %d shrinks to %s", size, v.Ordinal, v.Size.String())
			}
		}
	}
}
