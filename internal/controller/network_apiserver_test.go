//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
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
	}
	if w.kind.port == etcd.Port { // through which the operator changes the membership
		want = append(want, operatorIn(operatorNamespace))
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

// An operator that takes over in another namespace is let in from there alone, and nothing
// else of a cluster changes: not for a cluster of an operator that let in every namespace
// either.
func TestOperatorMovesToAnotherNamespace(t *testing.T) {
	eachKind(t, operatorMovesToAnotherNamespace)
}

func operatorMovesToAnotherNamespace(t *testing.T, w *world) {
	w.operatorNamespace = ""
	c, o := w.settled(1)
	pods, revision := w.podUIDs(c), w.declaredAgent(c, agentImage)
	w.watch(func(c v1alpha1.Cluster) {
		if !ready(c) {
			t.Errorf("an exchange of the operator shows: %s", describeDrifts(c))
		}
	})
	for _, namespace := range []string{operatorNamespace, "holdfast-shard-b", ""} {
		o.stop()
		w.operatorNamespace = namespace
		o = w.operate(0)
		want := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: w.selector(c)}}, operatorIn(namespace)}
		apitest.Eventually(t, "agents let the operator in from "+namespace, func(context.Context) (bool, string) {
			got := w.peersAt(c, agentapi.StatusPort)
			return cmp.Equal(want, got), cmp.Diff(want, got)
		})
		w.awaitSteady(o)
		if now := w.declaredAgent(c, agentImage); now != revision {
			t.Errorf("the template changed: revision %s, before %s", now, revision)
		}
		if diff := cmp.Diff(pods, w.podUIDs(c)); diff != "" {
			t.Errorf("pods were replaced (-before +now):\n%s", diff)
		}
	}
}

// operatorIn are pods with the operator's label in a namespace; in any where that is empty.
func operatorIn(namespace string) networkingv1.NetworkPolicyPeer {
	from := &metav1.LabelSelector{}
	if namespace != "" {
		from.MatchLabels = map[string]string{"kubernetes.io/metadata.name": namespace}
	}
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: from, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "holdfast"}}}
}

// selector are the labels by which a cluster's members are selected.
func (w *world) selector(c v1alpha1.Cluster) map[string]string {
	return map[string]string{v1alpha1.LabelCluster: c.GetName(), v1alpha1.LabelKind: strings.ToLower(w.kind.name)}
}

// clientPeers are who may reach the database's port; none where everyone may.
func (w *world) clientPeers(c v1alpha1.Cluster) []networkingv1.NetworkPolicyPeer {
	w.t.Helper()
	return w.peersAt(c, w.kind.port)
}

// peersAt are who may reach a port of members; none where everyone may.
func (w *world) peersAt(c v1alpha1.Cluster, number int32) []networkingv1.NetworkPolicyPeer {
	w.t.Helper()
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: c.GetName()}}
	if err := w.person.Get(w.t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
		w.t.Fatal(err)
	}
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			if port.Port.IntVal == number {
				return rule.From
			}
		}
	}
	w.t.Fatalf("no rule is about port %d: %v", number, policy.Spec.Ingress)
	return nil
}
