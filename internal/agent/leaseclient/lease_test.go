package leaseclient

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
)

var me = identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-0", PodUID: "uid-0", Address: "10.0.0.7"}

func TestExpiry(t *testing.T) {
	type reading struct {
		at           time.Duration
		uid, version string
		fails        bool
	}
	every := func(from, to time.Duration, uid, version string) (readings []reading) {
		for at := from; at <= to; at += time.Second {
			readings = append(readings, reading{at: at, uid: uid, version: version})
		}
		return readings
	}
	s := time.Second
	cases := []struct {
		name     string
		readings []reading
		want     bool
	}{
		{"one look proves nothing", every(0, 0, "a", "1"), false},
		{"nine seconds are not enough", every(0, 9*s, "a", "1"), false},
		{"ten seconds without a write are over", every(0, 10*s, "a", "1"), true},
		{"a renewal starts again", append(every(0, 9*s, "a", "1"), every(10*s, 19*s, "a", "2")...), false},
		{"a failed reading starts again", append(append(every(0, 9*s, "a", "1"), reading{at: 10 * s, fails: true}), every(11*s, 20*s, "a", "1")...), false},
		{"another Lease of the name starts again", append(every(0, 9*s, "a", "1"), every(10*s, 19*s, "b", "1")...), false},
		{"a pause in the looks starts again", append(every(0, 2*s, "a", "1"), every(10*s, 19*s, "a", "1")...), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var e expiry
			for _, l := range c.readings {
				if l.fails {
					e = e.recordFailure()
				} else {
					e = e.recordReading(l.uid, l.version, l.at)
				}
			}
			if got := e.hasPassed(LeaseDuration); got != c.want {
				t.Errorf("over is %v", got)
			}
		})
	}
}

func TestClaimState(t *testing.T) {
	expired := expiry{counting: true, last: LeaseDuration}
	cases := []struct {
		name   string
		record Record
		expiry expiry
		want   ClaimState
	}{
		{"a Lease of this pod is mine", Record{HolderUID: "uid-0", Duration: LeaseDuration}, expiry{}, ClaimMine},
		{"a Lease of another pod is held", Record{HolderUID: "uid-1", Duration: LeaseDuration}, expiry{}, ClaimHeld},
		{"an unrenewed Lease is expired", Record{HolderUID: "uid-1", Duration: LeaseDuration}, expired, ClaimExpired},
		{"a Lease released in order is released", Record{ShutdownPosition: "0/1", Duration: LeaseDuration}, expiry{}, ClaimReleased},
		{"a Lease without a holder or a position may be held", Record{Duration: LeaseDuration}, expiry{}, ClaimHeld},
		{"a longer duration is waited for", Record{HolderUID: "uid-1", Duration: 2 * LeaseDuration}, expired, ClaimHeld},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := claimState(c.record, "uid-0", c.expiry); got != c.want {
				t.Errorf("claim is %v, want %v", got, c.want)
			}
		})
	}
}

func heldBy(uid string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-primary", Namespace: "shop", Annotations: map[string]string{
			v1alpha1.AnnotationSystemIdentifier: "7", AnnotationTerm: "4",
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new(uid)},
	}
}

func newTestLease(objects ...runtime.Object) (*Lease, *fake.Clientset) {
	client := fake.NewClientset(objects...)
	return NewLease(me, map[string]string{v1alpha1.LabelCluster: "orders"}, func() []metav1.OwnerReference { return nil }, client, slog.New(slog.DiscardHandler)), client
}

func readLease(t *testing.T, l *Lease) Record {
	t.Helper()
	record, err := l.ReadRecord(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestLeaseIsMadeKeptAndReleased(t *testing.T) {
	ctx := context.Background()
	l, _ := newTestLease()
	if got := readLease(t, l).Claim; got != ClaimMissing {
		t.Fatalf("claim is %v", got)
	}
	if err := l.ClaimLease(ctx, "u", false); err != nil {
		t.Fatal(err)
	}
	if err := l.AnnotateLease(ctx, map[string]string{v1alpha1.AnnotationSystemIdentifier: "7"}); err != nil {
		t.Fatal(err)
	}
	r := readLease(t, l)
	if r.Claim != ClaimMine || r.Term != 1 || r.SystemIdentifier != "7" || r.Address != "10.0.0.7" || r.RenewTime.IsZero() {
		t.Errorf("record is %+v", r)
	}
	if err := l.ReleaseLease(ctx, 2, "0/5000028"); err != nil {
		t.Fatal(err)
	}
	if held, _ := l.CheckHeld(); held {
		t.Error("held after the release")
	}
	if r := readLease(t, l); r.Claim != ClaimReleased || r.Timeline != 2 || r.Checkpoint != "0/5000028" || r.ShutdownPosition != "0/5000028" || r.SystemIdentifier != "7" {
		t.Errorf("record is %+v", r)
	}
	if err := l.ClaimLease(ctx, "u", false); err != nil {
		t.Fatal(err)
	}
	if r := readLease(t, l); r.Claim != ClaimMine || r.Term != 2 || r.ShutdownPosition != "" || r.Checkpoint != "0/5000028" || r.Timeline != 2 {
		t.Errorf("record is %+v", r)
	}
}

func TestClaimOfALeaseThatWasLeftBehind(t *testing.T) {
	ctx := context.Background()
	left := heldBy("")
	for name, value := range map[string]string{AnnotationCluster: "old", AnnotationTimeline: "1", AnnotationCheckpoint: "0/50", AnnotationShutdownPosition: "0/50"} {
		left.Annotations[name] = value
	}
	for _, forget := range []bool{false, true} {
		l, _ := newTestLease(left)
		if r := readLease(t, l); r.Cluster != "old" {
			t.Errorf("cluster is %q", r.Cluster)
		}
		if err := l.ClaimLease(ctx, "new", forget); err != nil {
			t.Fatal(err)
		}
		r := readLease(t, l)
		if r.Cluster != "new" || r.Term != 5 || r.Claim != ClaimMine {
			t.Errorf("record is %+v", r)
		}
		if forgotten := r.SystemIdentifier == "" && r.Checkpoint == "" && r.Timeline == 0 && r.ShutdownPosition == ""; forgotten != forget {
			t.Errorf("forget %v: record is %+v", forget, r)
		}
	}
}

// An agent of before AnnotationCheckpoint leaves it as it was, and records where
// it shut down.
func TestClaimKeepsTheShutdownOfAnOlderAgent(t *testing.T) {
	for _, before := range []string{"", "0/50"} {
		released := heldBy("")
		released.Annotations[AnnotationCheckpoint], released.Annotations[AnnotationShutdownPosition] = before, "0/90"
		l, _ := newTestLease(released)
		readLease(t, l)
		if err := l.ClaimLease(context.Background(), "u", false); err != nil {
			t.Fatal(err)
		}
		if r := readLease(t, l); r.Checkpoint != "0/90" {
			t.Errorf("checkpoint %q became %q", before, r.Checkpoint)
		}
	}
}

func TestLeaseOfThisPodKeepsItsTerm(t *testing.T) {
	l, _ := newTestLease(heldBy("uid-0"))
	readLease(t, l)
	if err := l.ClaimLease(context.Background(), "u", false); err != nil {
		t.Fatal(err)
	}
	if r := readLease(t, l); r.Term != 4 {
		t.Errorf("term is %d", r.Term)
	}
}

func conflict() error {
	return apierrors.NewConflict(coordinationv1.Resource("leases"), "orders-primary", errors.New("modified"))
}

func TestLeaseIsLostToAnotherHolder(t *testing.T) {
	ctx := context.Background()
	l, client := newTestLease(heldBy("uid-0"))
	readLease(t, l)
	if err := l.ClaimLease(ctx, "u", false); err != nil {
		t.Fatal(err)
	}
	_, lost := l.CheckHeld()
	client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, conflict() })
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, heldBy("uid-1"), nil })
	if err := l.writeLease(ctx, func(*coordinationv1.Lease) {}); !errors.Is(err, ErrLeaseLost) {
		t.Fatalf("error is %v", err)
	}
	select {
	case <-lost:
	default:
		t.Error("no holder was notified")
	}
}

func TestLeaseOutlivesAnOutage(t *testing.T) {
	ctx := context.Background()
	l, client := newTestLease(heldBy("uid-0"))
	readLease(t, l)
	if err := l.ClaimLease(ctx, "u", false); err != nil {
		t.Fatal(err)
	}
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if err := l.writeLease(ctx, func(*coordinationv1.Lease) {}); err == nil {
		t.Fatal("a write went through")
	}
	if _, err := l.ReadRecord(ctx); err == nil {
		t.Fatal("a look went through")
	}
	if r, held := l.LastRecord(); !held || r.SystemIdentifier != "7" {
		t.Errorf("after an outage: %v, %+v", held, r)
	}
}

func TestDeletedLeaseIsMadeAgainWithItsSystemIdentifier(t *testing.T) {
	ctx := context.Background()
	l, client := newTestLease(heldBy("uid-0"))
	readLease(t, l)
	if err := l.ClaimLease(ctx, "u", false); err != nil {
		t.Fatal(err)
	}
	if err := client.CoordinationV1().Leases("shop").Delete(ctx, "orders-primary", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.writeLease(ctx, func(*coordinationv1.Lease) {}); err != nil {
		t.Fatal(err)
	}
	if r := readLease(t, l); r.Claim != ClaimMine || r.SystemIdentifier != "7" || r.Term != 4 {
		t.Errorf("record is %+v", r)
	}
}

func TestClaimIsLostToTheFirstMember(t *testing.T) {
	l, client := newTestLease(heldBy("uid-1"))
	readLease(t, l)
	client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, conflict() })
	if err := l.ClaimLease(context.Background(), "u", false); err == nil {
		t.Error("won against another's write")
	}
	if held, _ := l.CheckHeld(); held {
		t.Error("held")
	}
}

// What a holder records at renewals stays for who comes next, but for the kernel
// under which it was written.
func TestRenewalRecords(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	l, client := newTestLease(heldBy("uid-0"))
	readLease(t, l)
	if err := l.ClaimLease(ctx, "u", false); err != nil {
		t.Fatal(err)
	}
	l.RecordAtRenewal(func(annotations map[string]string) {
		annotations[AnnotationTimeline], annotations[AnnotationFlushed], annotations[AnnotationBoot] = "3", "0/70", "kernel"
	})
	if err := l.AnnotateLease(ctx, map[string]string{AnnotationReserved: "4"}); err != nil {
		t.Fatal(err)
	}
	kept := make(chan struct{})
	go func() { defer close(kept); l.RenewWhileHeld(ctx) }()
	for readLease(t, l).Flushed == "" {
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	<-kept
	if r := readLease(t, l); r.Timeline != 3 || r.Flushed != "0/70" || r.Boot != "kernel" || r.Reserved != 4 {
		t.Errorf("record is %+v", r)
	}
	other := NewLease(identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-0", PodUID: "uid-9"}, nil,
		func() []metav1.OwnerReference { return nil }, client, slog.New(slog.DiscardHandler))
	readLease(t, other)
	if err := other.ClaimLease(context.Background(), "u", false); err != nil {
		t.Fatal(err)
	}
	if r := readLease(t, other); r.Flushed != "0/70" || r.Boot != "" || r.Reserved != 4 || r.Timeline != 3 {
		t.Errorf("its successor reads %+v", r)
	}
}
