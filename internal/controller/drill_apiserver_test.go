//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// drills plays the kubelet of the pods that restore on trial, and the program in
// them.
type drills struct {
	mu sync.Mutex
	// held keeps programs from coming to an end; fault is what they end with.
	held  bool
	fault string
	// tasks of the programs that were begun, by pod.
	tasks map[types.UID]agentapi.RestoreTask
}

func (d *drills) set(change func(d *drills)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

// began is how many programs were begun.
func (d *drills) began() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.tasks)
}

// step takes a pod one step further.
func (d *drills) step(ctx context.Context, s *simulation, pod *corev1.Pod) error {
	if runs, err := s.advanceJobPod(ctx, pod); !runs {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ctr := pod.Spec.Containers[0]
	var task agentapi.RestoreTask
	if err := json.Unmarshal([]byte(ctr.Env[0].Value), &task); err != nil {
		return err
	}
	if d.tasks == nil {
		d.tasks = map[types.UID]agentapi.RestoreTask{}
	}
	d.tasks[pod.UID] = task
	if d.held {
		return nil
	}
	done, code := pod.DeepCopy(), int32(0)
	done.Status.Phase = corev1.PodSucceeded
	if d.fault != "" {
		done.Status.Phase, code = corev1.PodFailed, agentapi.ExitPermanent
	}
	words, err := json.Marshal(agentapi.DrillReport{Backup: "before", Checked: []string{"all of it"}, Error: d.fault})
	if err != nil {
		return err
	}
	done.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: ctr.Name, Image: ctr.Image,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Ended", Message: string(words), FinishedAt: metav1.Now()}}}}
	return s.kubelet.Status().Patch(ctx, done, client.MergeFrom(pod))
}

// drilled is a cluster with one good backup, whose drill was due while no
// operator ran.
func (w *world) drilled() (v1alpha1.Cluster, *v1alpha1.Backup) {
	w.t.Helper()
	c := w.backedUp()
	o := w.operate(0)
	w.awaitReady(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Backup.Verify = &v1alpha1.BackupVerify{Schedule: "0 3 1 1 *"} })
	b := w.backup("before", v1alpha1.DeletionDelete)
	w.create(b)
	w.awaitBackup(b, "complete", completed)
	await(w, c, "a slot to come", func(c v1alpha1.Cluster) bool {
		d := c.CommonStatus().Drill
		return d != nil && d.NextTime != nil && c.CommonStatus().LastBackup != nil
	})
	w.awaitSteady(o)
	o.stop()
	w.due(c, 3)
	return c, b
}

// due has the next slot of drills be one that went by, at that hour of New Year,
// while no operator runs.
func (w *world) due(c v1alpha1.Cluster, hour int) {
	w.t.Helper()
	w.get(c)
	before := c.DeepCopyObject().(client.Object)
	st := c.CommonStatus()
	i := slices.IndexFunc(st.Schedules, func(s v1alpha1.ScheduleStatus) bool { return s.Name == "Drill" })
	st.Schedules[i].NextSlot = new(metav1.NewTime(time.Date(time.Now().Year(), 1, 1, hour, 0, 0, 0, time.UTC)))
	if err := w.person.Status().Patch(w.t.Context(), c, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func drillEnded(result string) func(v1alpha1.Cluster) bool {
	return func(c v1alpha1.Cluster) bool {
		d := c.CommonStatus().Drill
		return d != nil && d.Running == nil && d.Result == result
	}
}

// volumes of drills that are not on their way out.
func (w *world) drillVolumes() (names []string) {
	w.t.Helper()
	var claims corev1.PersistentVolumeClaimList
	if err := w.person.List(w.t.Context(), &claims, client.InNamespace(w.Namespace), client.HasLabels{v1alpha1.LabelDrill}); err != nil {
		w.t.Fatal(err)
	}
	for i := range claims.Items {
		if claims.Items[i].DeletionTimestamp == nil {
			names = append(names, claims.Items[i].Name)
		}
	}
	return names
}

func (w *world) drillJobs() (names []string) {
	w.t.Helper()
	var jobs batchv1.JobList
	if err := w.person.List(w.t.Context(), &jobs, client.InNamespace(w.Namespace), client.HasLabels{v1alpha1.LabelDrill}); err != nil {
		w.t.Fatal(err)
	}
	for i := range jobs.Items {
		names = append(names, jobs.Items[i].Name)
	}
	return names
}

// awaitNoDrill waits until nothing of a drill is left. Kubernetes removes a Job after its pods.
func (w *world) awaitNoDrill() {
	w.t.Helper()
	apitest.Eventually(w.t, "all of it goes", func(context.Context) (bool, string) {
		left := append(w.drillJobs(), w.drillVolumes()...)
		return len(left) == 0, fmt.Sprint(left)
	})
}

// A slot becomes a drill, whose result status says. Nothing else of it stays.
func TestDrill(t *testing.T) { eachCopiedKind(t, drillPasses) }

func drillPasses(t *testing.T, w *world) {
	c, b := w.drilled()
	o := w.operate(0)
	await(w, c, "passed", drillEnded(v1alpha1.DrillPassed))
	name := fmt.Sprintf("orders-drill-%d0101-0300", time.Now().Year())
	d := c.CommonStatus().Drill
	if d.Job != name || d.Backup != "before" || !slices.Equal(d.Checked, []string{"all of it"}) || d.LastPassedTime == nil || d.Message != "" || !conditions.IsTrue(c, v1alpha1.ConditionReady) {
		t.Errorf("%+v", d)
	}
	for _, task := range w.simulation.drills.tasks {
		if task.Manifest != b.Status.Result.Manifest || task.Store.URL != "file:///backups" || task.UID == string(c.GetUID()) {
			t.Errorf("%+v", task)
		}
	}
	w.awaitSteady(o)
	w.awaitNoDrill()
	if began := w.simulation.drills.began(); began != 1 {
		t.Errorf("%d programs began", began)
	}
}

// A drill that fails says what cannot be relied on, until one passes. The database
// serves. With verify all of it goes.
func TestDrillThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.simulation.drills.set(func(d *drills) { d.fault = "table public.orders: a page is torn" })
	c, _ := w.drilled()
	o := w.operate(0)
	await(w, c, "failed", func(c v1alpha1.Cluster) bool {
		return drillEnded(v1alpha1.DrillFailed)(c) && conditions.GetReason(c, v1alpha1.ConditionBackedUp) == v1alpha1.ReasonDrillFailed &&
			strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionBackedUp), "a page is torn")
	})
	if !conditions.IsTrue(c, v1alpha1.ConditionReady) || !conditions.IsFalse(c, v1alpha1.ConditionBackedUp) {
		t.Error(describeDrifts(c))
	}
	w.simulation.drills.set(func(d *drills) { d.fault = "" })
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Backup.Verify.Schedule = "0 4 1 1 *" })
	await(w, c, "another schedule", func(c v1alpha1.Cluster) bool { return c.CommonStatus().Drill.NextTime.UTC().Hour() == 4 })
	w.awaitSteady(o)
	o.stop()
	w.due(c, 4)
	w.operate(0)
	await(w, c, "passed", func(c v1alpha1.Cluster) bool {
		return drillEnded(v1alpha1.DrillPassed)(c) && conditions.GetReason(c, v1alpha1.ConditionBackedUp) == v1alpha1.ReasonBackedUp
	})
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Backup.Verify = nil })
	await(w, c, "without drills", func(c v1alpha1.Cluster) bool { return c.CommonStatus().Drill == nil })
	w.awaitNoDrill()
}

// An operator that dies in any of its writes goes on from there: one drill is
// made of a slot.
func TestDrillSurvivesTheOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c, _ := w.drilled()
	over := false
	for limit := 1; limit < 10 && !over; limit++ {
		o := w.operate(limit)
		apitest.Eventually(t, fmt.Sprintf("the end of write %d, or of the drill", limit), func(context.Context) (bool, string) {
			w.get(c)
			select {
			case <-o.crashed:
				return true, ""
			default:
				over = drillEnded(v1alpha1.DrillPassed)(c) && len(w.drillJobs())+len(w.drillVolumes()) == 0
				return over, describeDrifts(c)
			}
		})
		o.stop()
	}
	o := w.operate(0)
	await(w, c, "passed", drillEnded(v1alpha1.DrillPassed))
	w.awaitSteady(o)
	w.awaitNoDrill()
	if began := w.simulation.drills.began(); began != 1 {
		t.Errorf("%d programs began", began)
	}
}

// A backup that is deleted while it is restored on trial keeps its data until
// then; a Job that a user deletes is made again.
func TestDrillKeepsItsBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.simulation.drills.set(func(d *drills) { d.held = true })
	c, b := w.drilled()
	w.operate(0)
	await(w, c, "under way", func(v1alpha1.Cluster) bool { return w.simulation.drills.began() == 1 })
	if err := w.person.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.awaitBackup(b, "its reader is named", func(b *v1alpha1.Backup) bool {
		return strings.Contains(conditions.GetMessage(b, v1alpha1.ConditionReconciling), "orders is being restored from it")
	})
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.drillJobs()[0]}}
	if err := w.person.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	await(w, c, "begun again", func(v1alpha1.Cluster) bool { return w.simulation.drills.began() == 2 })
	if n := w.simulation.jobs.verbs()["remove"]; n != 0 {
		t.Errorf("%d removals", n)
	}
	w.simulation.drills.set(func(d *drills) { d.held = false })
	await(w, c, "passed", drillEnded(v1alpha1.DrillPassed))
	w.awaitGone(b)
}

// A cluster that is deleted takes along what a drill needs, whatever becomes of
// its own volumes.
func TestDrillGoesWithItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	w.simulation.drills.set(func(d *drills) { d.held = true })
	c, _ := w.drilled()
	w.operate(0)
	await(w, c, "under way", func(v1alpha1.Cluster) bool { return w.simulation.drills.began() == 1 })
	if err := w.person.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "all of the drill goes", func(ctx context.Context) (bool, string) {
		jobs, left := w.drillJobs(), w.drillVolumes()
		kept := w.claim("data-orders-0")
		err := w.person.Get(ctx, client.ObjectKeyFromObject(kept), kept)
		return len(jobs)+len(left) == 0 && !apierrors.IsNotFound(err), fmt.Sprint(jobs, left, err)
	})
}
