//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/backup"
)

// checks plays the kubelet of pods that try a store, and the program in them.
type checks struct {
	mu sync.Mutex
	// fault is what they end with; empty for success.
	fault string
	// check, where it is set, tries the store for real: its error is the fault.
	check func(ctx context.Context, task agentapi.CheckTask) error
	tasks map[types.UID]agentapi.CheckTask
}

func (c *checks) set(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

// began are the tasks of the programs that were begun.
func (c *checks) began() []agentapi.CheckTask {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []agentapi.CheckTask
	for _, task := range c.tasks {
		all = append(all, task)
	}
	return all
}

// step takes a pod one step further.
func (c *checks) step(ctx context.Context, s *simulation, pod *corev1.Pod) error {
	if runs, err := s.advanceJobPod(ctx, pod); !runs {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ctr := pod.Spec.Containers[0]
	var task agentapi.CheckTask
	if err := json.Unmarshal([]byte(ctr.Env[0].Value), &task); err != nil || strings.Join(ctr.Args, " ") != "job check-store" {
		s.t.Errorf("pod %s runs %q with the task %q: %v", pod.Name, ctr.Args, ctr.Env[0].Value, err)
	}
	if c.tasks == nil {
		c.tasks = map[types.UID]agentapi.CheckTask{}
	}
	c.tasks[pod.UID] = task
	fault := c.fault
	if c.check != nil {
		if err := c.check(ctx, task); err != nil {
			fault = backup.DescribeFault(err, false)
		}
	}
	done, ended := pod.DeepCopy(), corev1.ContainerStateTerminated{Reason: "Completed"}
	done.Status.Phase = corev1.PodSucceeded
	if fault != "" {
		done.Status.Phase = corev1.PodFailed
		ended = corev1.ContainerStateTerminated{Reason: "Error", ExitCode: agentapi.ExitPermanent, Message: fault}
	}
	done.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: ctr.Name, Image: ctr.Image, State: corev1.ContainerState{Terminated: &ended}}}
	return s.kubelet.Status().Patch(ctx, done, client.MergeFrom(pod))
}

// awaitBackedUp waits until the condition has a reason, and says these words.
func (w *world) awaitBackedUp(c v1alpha1.Cluster, reason, words string) {
	w.t.Helper()
	await(w, c, "BackedUp for "+reason, func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionBackedUp) == reason && strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionBackedUp), words)
	})
}

// A destination that cannot be used is said before there is a backup, once for
// what it was given, and never again once it can be used.
func TestStoreIsChecked(t *testing.T) { eachCopiedKind(t, storeIsChecked) }

func storeIsChecked(t *testing.T, w *world) {
	w.simulation.checks.set("spec.backup.destination.credentialsSecretRef: write x: AccessDenied")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	edit(w, ns, func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted" })
	c := w.cluster("orders", 1)
	c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly, Destination: &v1alpha1.BackupDestination{
		URL: "s3://acme/team/", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"},
	}}
	w.create(c)
	o := w.operate(0)
	w.awaitBackedUp(c, v1alpha1.ReasonSecretMissing, `spec.backup.destination.credentialsSecretRef: there is no Secret "keys"`)
	if began := w.simulation.checks.began(); len(began) > 0 {
		t.Errorf("it was tried without keys: %v", began)
	}

	keys := w.keys()
	w.create(keys)
	w.awaitBackedUp(c, v1alpha1.ReasonStoreUnusable, "AccessDenied")
	w.awaitReady(c) // it serves all the same
	w.awaitSteady(o)
	want := agentapi.CheckTask{Store: agentapi.BackupStore{URL: "s3://acme/team"}, Prefix: fmt.Sprintf("%s/orders/%s/", w.Namespace, c.GetUID())}
	if diff := cmp.Diff([]agentapi.CheckTask{want}, w.simulation.checks.began()); diff != "" {
		t.Errorf("tried (-want +got):\n%s", diff)
	}
	if check := c.CommonStatus().StoreCheck; check == nil || check.Failures != 1 || time.Since(check.Time.Time) > time.Hour {
		t.Errorf("on record is %+v", check)
	}

	w.simulation.checks.set("")
	edit(w, keys, func(s *corev1.Secret) { s.StringData = map[string]string{"AWS_ACCESS_KEY_ID": "fixed"} })
	w.awaitBackedUp(c, v1alpha1.ReasonBackedUp, "backup orders-first-") // not before it could be used
	w.awaitNoJob()
	w.awaitSteady(o)
	o.stop()
	o = w.operate(0)
	w.awaitSteady(o)
	if began := w.simulation.checks.began(); len(began) != 2 {
		t.Errorf("it was tried %d times", len(began))
	}
	w.get(c)
	if check := c.CommonStatus().StoreCheck; check == nil || check.Error != "" || check.Failures != 0 {
		t.Errorf("on record is %+v", check)
	}
}

// awaitNoJob waits until no Job is left. Kubernetes removes one after its pods.
func (w *world) awaitNoJob() {
	w.t.Helper()
	apitest.Eventually(w.t, "the Jobs go", func(ctx context.Context) (bool, string) {
		var jobs batchv1.JobList
		err := w.person.List(ctx, &jobs, client.InNamespace(w.Namespace))
		return err == nil && len(jobs.Items) == 0, fmt.Sprint(len(jobs.Items), err)
	})
}

// An operator that dies in any of its writes leaves a store that is checked.
func TestStoreIsCheckedAcrossCrashes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c, o := w.settled(1)
	o.stop()
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly, Destination: &v1alpha1.BackupDestination{URL: "s3://acme"}}
	})
	for range 6 {
		o := w.operate(1)
		select {
		case <-o.crashed:
		case <-time.After(5 * time.Second): // nothing is left to be written
		}
		o.stop()
	}
	o = w.operate(0)
	await(w, c, "checked", func(c v1alpha1.Cluster) bool {
		check := c.CommonStatus().StoreCheck
		return check != nil && check.Error == ""
	})
	w.awaitSteady(o)
	w.awaitNoJob()
}
