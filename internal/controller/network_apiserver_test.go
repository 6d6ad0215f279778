//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// Who may connect is what the spec says, beside members, Jobs and the operator;
// where it says so there is no NetworkPolicy of ours.
func TestNetworkPolicyFollowsTheSpec(t *testing.T) { eachKind(t, networkPolicyFollowsTheSpec) }

func networkPolicyFollowsTheSpec(t *testing.T, w *world) {
	c, _ := w.settled(1)
	everyone := w.clientPeers(c)
	if len(everyone) > 0 {
		t.Errorf("by default clients are %v, want everyone", everyone)
	}
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Network.From = []v1alpha1.NetworkPeer{
			{PodSelector: &v1alpha1.PeerSelector{MatchLabels: map[string]v1alpha1.PeerLabelValue{"app": "shop"}}},
			{IPBlock: &v1alpha1.PeerIPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}},
		}
	})
	want := []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}},
		{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelCluster: "orders"}}},
		{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "holdfast"}}},
	}
	apitest.Eventually(t, "the declared clients", func(context.Context) (bool, string) {
		got := w.clientPeers(c)
		return cmp.Equal(want, got), cmp.Diff(want, got)
	})
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Network = v1alpha1.NetworkSpec{Policy: v1alpha1.NetworkPolicyNone}
	})
	apitest.Eventually(t, "the NetworkPolicy goes", func(context.Context) (bool, string) {
		found := w.objects(c)["NetworkPolicy"]
		return len(found) == 0, fmt.Sprint(found)
	})
	w.awaitReady(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Network = v1alpha1.NetworkSpec{} })
	apitest.Eventually(t, "the NetworkPolicy is back", func(context.Context) (bool, string) {
		found := w.objects(c)["NetworkPolicy"]
		return len(found) == 1, fmt.Sprint(found)
	})
}

// clientPeers are who may reach the database's port; none where everyone may.
func (w *world) clientPeers(c v1alpha1.Cluster) []networkingv1.NetworkPolicyPeer {
	w.t.Helper()
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: c.GetName()}}
	if err := w.person.Get(w.t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		w.t.Fatal(err)
	}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port.IntVal == w.kind.port {
				return rule.From
			}
		}
	}
	w.t.Fatalf("nobody may reach port %d: %v", w.kind.port, policy.Spec.Ingress)
	return nil
}
