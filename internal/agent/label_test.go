package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// A primary leaves its Service a while before another member leads, and is
// back in it where it stays the primary.
func TestPrimaryWithdraws(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(ctx context.Context, l *Labeller, restore func())
		want string
	}{
		{"and another member leads", func(_ context.Context, l *Labeller, _ func()) { l.SetRole(v1alpha1.RoleMember) }, v1alpha1.RoleMember},
		{"and follows another member", func(_ context.Context, l *Labeller, _ func()) { l.SetRole(v1alpha1.RoleReplica) }, v1alpha1.RoleMember},
		{"and follows another member for a while", func(_ context.Context, l *Labeller, _ func()) {
			for range 5 {
				l.SetRole(v1alpha1.RoleReplica)
				time.Sleep(returnPause / 4)
			}
		}, v1alpha1.RoleReplica},
		{"and leads again later", func(_ context.Context, l *Labeller, _ func()) {
			l.SetRole(v1alpha1.RoleReplica)
			l.SetRole(v1alpha1.RolePrimary)
		}, v1alpha1.RolePrimary},
		{"and the switchover is refused", func(_ context.Context, _ *Labeller, restore func()) { restore() }, v1alpha1.RolePrimary},
		{"and says nothing any more", func(context.Context, *Labeller, func()) { time.Sleep(withdrawLimit) }, v1alpha1.RolePrimary},
		{"and the one before it is given up", func(ctx context.Context, l *Labeller, restore func()) {
			l.Withdraw(ctx, 0)
			restore()
		}, v1alpha1.RoleMember},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(pod("orders-0", "uid-0", ""))
				l := NewLabeller(testMember, client, func() []string { return nil }, slog.New(slog.DiscardHandler))
				go l.FollowRole(t.Context())
				l.SetRole(v1alpha1.RolePrimary)
				l.WaitForLabel(t.Context())
				expectRole(t, client, v1alpha1.RolePrimary)
				began := time.Now()
				restore := l.Withdraw(t.Context(), ProxyInterval)
				if waited := time.Since(began); waited < ProxyInterval {
					t.Errorf("the switchover goes on after %s", waited)
				}
				l.SetRole(v1alpha1.RolePrimary) // it still is
				expectRole(t, client, v1alpha1.RoleMember)
				c.end(t.Context(), l, restore)
				expectRole(t, client, c.want)
			})
		})
	}
}

// Without an API server no proxy hears of a withdrawal, and nothing waits for them.
func TestWithdrawalIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(pod("orders-0", "uid-0", "primary"))
		client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("the API server is away")
		})
		l := NewLabeller(testMember, client, func() []string { return nil }, slog.New(slog.DiscardHandler))
		go l.FollowRole(t.Context())
		l.SetRole(v1alpha1.RolePrimary)
		synctest.Wait()
		began := time.Now()
		l.Withdraw(t.Context(), 0)
		if waited := time.Since(began); waited > labelTimeout {
			t.Errorf("the switchover goes on after %s", waited)
		}
	})
}

func expectRole(t *testing.T, client *fake.Clientset, want string) {
	t.Helper()
	synctest.Wait()
	if got := roleOf(t, client, "orders-0"); got != want {
		t.Errorf("labelled %s, want %s", got, want)
	}
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
