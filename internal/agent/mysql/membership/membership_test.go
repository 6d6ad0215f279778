package membership

import (
	"context"
	"errors"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	name = "5b8f3c1e-0000-5000-8000-000000000001"
	a, b = "00000000-0000-1000-8000-00000000000a", "00000000-0000-1000-8000-00000000000b"
)

func newLease(client *fake.Clientset) *leaseclient.MembershipLease {
	return leaseclient.NewMembershipLease(identity.Identity{Namespace: "shop", Cluster: "orders"}, nil, func() []metav1.OwnerReference { return nil }, client)
}

func newStores(t *testing.T) (*Store, *Store) {
	t.Helper()
	client := fake.NewClientset()
	uid := func() string { return "u" }
	return NewStore(newLease(client), uid), NewStore(newLease(client), uid)
}

func mustOpen(t *testing.T, dir string) *Persisted {
	t.Helper()
	p, err := OpenPersisted(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What a member reads is on its volume before it acts by it.
func TestReadingIsKept(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	first, second := newStores(t)
	p := mustOpen(t, dir)
	if r, err := first.ReadAndKeep(ctx, name, p); err != nil || r.Group != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	record := group.Record{Group: name}.WithJoining(a, "orders-0")
	if err := first.Write(ctx, record); err != nil {
		t.Fatal(err)
	}
	r, err := second.ReadAndKeep(ctx, name, p)
	if err != nil || !r.IsEqual(record) {
		t.Fatalf("%+v, %v", r, err)
	}
	if again := mustOpen(t, dir); !again.Record().IsEqual(record) {
		t.Errorf("the volume has %+v", again.Record())
	}
	m, err := first.Read(ctx)
	if err != nil || m.Cluster != "u" {
		t.Errorf("%+v, %v", m, err)
	}
}

// A record of another group is no record of this one, and replaces nothing.
func TestRecordOfAnotherGroup(t *testing.T) {
	ctx := t.Context()
	store, _ := newStores(t)
	if _, err := store.Read(ctx); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(ctx, group.Record{Group: "other"}.WithJoining(b, "orders-1")); err != nil {
		t.Fatal(err)
	}
	p := mustOpen(t, t.TempDir())
	own := group.Record{Group: name}.WithJoining(a, "orders-0")
	if err := p.Save(own); err != nil {
		t.Fatal(err)
	}
	if _, err := store.ReadAndKeep(ctx, name, p); err == nil {
		t.Error("it was read")
	}
	if !p.Record().IsEqual(own) {
		t.Errorf("the volume has %+v", p.Record())
	}
}

// conflicting is a Lease that another member writes between a reading and a write.
type conflicting struct{ Lease }

var errConflict = errors.New("conflict")

func (conflicting) WriteRecord(context.Context, leaseclient.MembershipRecord) error {
	return errConflict
}

// A write that fails leaves the reading that the next one is bound to.
func TestWriteIsBoundToTheReading(t *testing.T) {
	ctx := t.Context()
	store, _ := newStores(t)
	if _, err := store.Read(ctx); err != nil {
		t.Fatal(err)
	}
	store.lease = conflicting{store.lease}
	before := store.last
	if err := store.Write(ctx, group.Record{Group: name}.WithJoining(a, "orders-0")); !errors.Is(err, errConflict) || store.last.Group != before.Group {
		t.Errorf("%v, %+v", err, store.last)
	}
}

// A Lease that is set back makes no volume forget: what was read together is kept, and is
// what the next write has.
func TestLeaseThatIsSetBack(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	store, writer := newStores(t)
	p := mustOpen(t, dir)
	older := group.Record{Group: name}.WithJoining(a, "orders-0").Next()
	newer := older.WithJoining(b, "orders-1").Next()
	write := func(r group.Record) {
		t.Helper()
		if _, err := writer.Read(ctx); err != nil {
			t.Fatal(err)
		}
		if err := writer.Write(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	write(newer)
	if r, err := store.ReadAndKeep(ctx, name, p); err != nil || !r.IsEqual(newer) || !store.Holds(newer) {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, earlier := range []group.Record{older, group.Record{Group: name}.Next()} {
		write(earlier)
		r, err := store.ReadAndKeep(ctx, name, p)
		if err != nil || !r.IsEqual(newer) || store.Holds(r) || !store.Holds(earlier) {
			t.Errorf("%+v, %v", r, err)
		}
		if again := mustOpen(t, dir); !again.Record().IsEqual(newer) {
			t.Errorf("the volume has %+v", again.Record())
		}
	}
	next := newer.Next()
	if err := store.Write(ctx, next); err != nil || !store.Holds(next) {
		t.Error(err)
	}
}
