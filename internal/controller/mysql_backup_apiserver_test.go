//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// A Job that clones a member of MySQL has a volume for the clone, which goes with its pod
// when the backup has failed, and a certificate that is made for it. The reason of the
// failure stays.
func TestMySQLScratch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, mysqlKind)
	c := w.backedUp()
	w.simulation.jobs.set(func(j *jobs) { j.code, j.fault = agentapi.ExitPermanent, "page 7 is not sound" })
	w.operate(0)
	b := w.backup("first", v1alpha1.DeletionRetain)
	w.create(b)
	w.awaitBackup(b, "failed", func(b *v1alpha1.Backup) bool { return b.Status.Phase == "Failed" })
	job := &batchv1.Job{}
	if err := w.person.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "first-copy"}, job); err != nil {
		t.Fatal(err)
	}
	volumes := job.Spec.Template.Spec.Volumes
	i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil })
	if i < 0 || volumes[i].Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests.Storage().String() != "1Gi" {
		t.Errorf("volumes %+v", volumes)
	}
	minted := &corev1.Secret{}
	if err := w.person.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: "orders-internal"}, minted); err != nil {
		t.Fatal(err)
	}
	if len(minted.Data["copier.crt"]) == 0 || len(minted.Data["copier.key"]) == 0 {
		t.Errorf("the Secret has no certificate for the Job")
	}
	apitest.Eventually(t, "the pod and its volume are gone", func(ctx context.Context) (bool, string) {
		var pods corev1.PodList
		err := w.person.List(ctx, &pods, client.InNamespace(w.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
		return err == nil && len(pods.Items) == 0, fmt.Sprintf("%d pods: %v", len(pods.Items), err)
	})
	if b.Status.Error != "page 7 is not sound" || w.simulation.jobs.verbs()["mysql"] != 1 {
		t.Errorf("%+v after %v", b.Status, w.simulation.jobs.verbs())
	}
	w.awaitReady(c)
}
