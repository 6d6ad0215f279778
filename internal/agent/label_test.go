package agent

import (
	"context"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
)

func pod(name, uid, role string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: types.UID(uid), Labels: map[string]string{v1alpha1.LabelRole: role},
	}}
}

func TestNewPrimaryTakesTheLabelFirst(t *testing.T) {
	client := fake.NewClientset(pod("orders-0", "uid-0", "member"), pod("orders-1", "uid-1", "primary"), pod("orders-2", "uid-2", "replica"))
	members := func() []string { return []string{"orders-0", "orders-1", "orders-2", "orders-3"} }
	l := NewLabeller(testMember, client, members, slog.New(slog.DiscardHandler))
	l.SetRole(v1alpha1.RolePrimary)
	if err := l.labelPod(context.Background()); err != nil {
		t.Fatal(err)
	}
	var patched []string
	for _, action := range client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok {
			patched = append(patched, patch.GetName())
		}
	}
	if len(patched) != 2 || patched[0] != "orders-1" || patched[1] != "orders-0" {
		t.Errorf("patched %v, want the other primary and then this pod", patched)
	}
	for name, want := range map[string]string{"orders-0": "primary", "orders-1": "member", "orders-2": "replica"} {
		if got := roleOf(t, client, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// A member that does not lead any more leaves the label where its successor has put it.
func TestLabelOfThePrimaryIsNotTakenBack(t *testing.T) {
	client := fake.NewClientset(pod("orders-0", "uid-0", "member"), pod("orders-1", "uid-1", "primary"))
	l := NewLabeller(testMember, client, func() []string { return []string{"orders-0", "orders-1"} }, slog.New(slog.DiscardHandler))
	leads := false
	l.LimitPrimary(func() bool { return leads })
	l.SetRole(v1alpha1.RolePrimary)
	for _, want := range []string{"member", "primary"} {
		if err := l.labelPod(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := roleOf(t, client, "orders-0"); got != want {
			t.Errorf("leads %t: labelled %s, want %s", leads, got, want)
		}
		leads = true
	}
}

func TestLabelIsPutBack(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client := fake.NewClientset(pod("orders-0", "uid-0", ""))
	l := NewLabeller(testMember, client, func() []string { return nil }, slog.New(slog.DiscardHandler))
	go l.FollowRole(ctx)
	l.SetRole(v1alpha1.RoleReplica)
	agenttest.WaitUntil(t, func() bool { return roleOf(t, client, "orders-0") == v1alpha1.RoleReplica })
	agenttest.WaitUntil(t, func() bool { // the watch must be up before the change is made
		for _, action := range client.Actions() {
			if action.GetVerb() == "watch" {
				return true
			}
		}
		return false
	})
	if _, err := client.CoreV1().Pods("shop").Update(ctx, pod("orders-0", "uid-0", "primary"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	agenttest.WaitUntil(t, func() bool { return roleOf(t, client, "orders-0") == v1alpha1.RoleReplica })
}

func roleOf(t *testing.T, client *fake.Clientset, name string) string {
	t.Helper()
	p, err := client.CoreV1().Pods("shop").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Labels[v1alpha1.LabelRole]
}

var testMember = identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-0", PodUID: "uid-0", Address: "10.0.0.7"}
