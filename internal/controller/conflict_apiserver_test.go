//go:build apiserver

package controller_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// A claim of a member's name that is another client's, be it a retained one of a
// cluster of another kind, is not only left alone: no pod gets to mount it.
func TestForeignVolumeIsNotMounted(t *testing.T) {
	t.Parallel()
	for name, labels := range map[string]map[string]string{
		"a person's": nil,
		"of another kind": {
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "orders", v1alpha1.LabelKind: "othercluster", v1alpha1.LabelMember: "0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, postgresKind)
			foreign := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "data-orders-0", Labels: labels},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}
			w.create(foreign)
			c := w.NewPostgresCluster("orders", 1)
			w.create(c)
			o := w.operate(0)
			await(w, c, "Stalled", func(c *v1alpha1.PostgresCluster) bool {
				return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonNameConflict && c.Status.CredentialsSecret != ""
			})
			w.awaitSteady(o)
			if pods := w.objects(c)["Pod"]; len(pods) > 0 {
				t.Errorf("%v mounts a claim that is not the cluster's", pods)
			}
			if err := w.person.Delete(t.Context(), foreign); err != nil {
				t.Fatal(err)
			}
			o.stop() // a new process need not wait its half minute
			w.operate(0)
			w.awaitReady(c)
			w.wantWhole(c, 1)
		})
	}
}

// What a cluster of another kind and the same name left behind is no source of
// passwords or certificates.
func TestForeignSecretsAreNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "orders", v1alpha1.LabelKind: "othercluster",
		}}
	}
	ca, err := pki.NewCA("theirs", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Secret{ObjectMeta: meta("orders-ca"), Data: pki.CAState{Current: ca}.SecretData()})
	w.create(&corev1.Secret{ObjectMeta: meta("orders-internal"), StringData: map[string]string{"app-password": "theirs"}})
	c := w.NewPostgresCluster("orders", 1)
	w.create(c)
	w.operate(0)
	await(w, c, "Stalled", func(c *v1alpha1.PostgresCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonNameConflict && c.Status.CredentialsSecret != ""
	})
	app, tls := &corev1.Secret{}, &corev1.Secret{}
	for name, into := range map[string]*corev1.Secret{"orders-app": app, "orders-tls": tls} {
		apitest.Eventually(t, name, func(ctx context.Context) (bool, string) {
			err := w.person.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, into)
			return err == nil, fmt.Sprint(err)
		})
	}
	if string(app.Data["password"]) == "theirs" {
		t.Error("applications log in with another cluster's password")
	}
	if bytes.Contains(tls.Data["ca.crt"], bytes.TrimSpace(ca.CertPEM)) {
		t.Error("members trust another cluster's CA")
	}
}
