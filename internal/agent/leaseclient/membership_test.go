package leaseclient

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
)

// versioned keeps Leases as the API server does: an update of anything but the
// live version is refused, which the fake lets through.
func versioned(client *fake.Clientset) *fake.Clientset {
	var live *coordinationv1.Lease
	store := func(next *coordinationv1.Lease, version int) *coordinationv1.Lease {
		live = next.DeepCopy()
		live.ResourceVersion = strconv.Itoa(version)
		return live.DeepCopy()
	}
	resource := coordinationv1.Resource("leases")
	client.PrependReactor("get", "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if live == nil {
			return true, nil, apierrors.NewNotFound(resource, a.(k8stesting.GetAction).GetName())
		}
		return true, live.DeepCopy(), nil
	})
	client.PrependReactor("create", "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
		next := a.(k8stesting.CreateAction).GetObject().(*coordinationv1.Lease)
		if live != nil {
			return true, nil, apierrors.NewAlreadyExists(resource, next.Name)
		}
		return true, store(next, 1), nil
	})
	client.PrependReactor("update", "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
		next := a.(k8stesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		if live == nil || next.ResourceVersion != live.ResourceVersion {
			return true, nil, conflict()
		}
		version, _ := strconv.Atoi(live.ResourceVersion)
		return true, store(next, version+1), nil
	})
	return client
}

// Of two members that write from the same reading one fails, so that no two
// volumes are recorded for one member.
func TestRegistryRefusesTheSecondWriter(t *testing.T) {
	client := versioned(fake.NewClientset())
	noOwners := func() []metav1.OwnerReference { return nil }
	open := func(pod string) *MembershipLease {
		return NewMembershipLease(identity.Identity{Namespace: "shop", Cluster: "orders", Pod: pod}, nil, noOwners, client)
	}
	first, second := open("orders-0"), open("orders-1")
	write := func(r *MembershipLease, start Start) error {
		record, err := r.ReadRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The other one reads at the same time.
		other := first
		if r == first {
			other = second
		}
		stale, err := other.ReadRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.WriteRecord(t.Context(), record.WithStart(start)); err != nil {
			t.Fatal(err)
		}
		return other.WriteRecord(t.Context(), stale.WithStart(Start{Member: start.Member, Pod: "other", Volume: "other"}))
	}
	a, b := Start{"a", "orders-0", "v0"}, Start{"b", "orders-1", "v1"}
	for i, err := range []error{write(first, a), write(second, b)} {
		if err == nil {
			t.Errorf("write %d: the second writer went through", i)
		}
	}
	got, err := first.ReadRecord(t.Context())
	if diff := cmp.Diff(MembershipRecord{Starts: []Start{a, b}}, got); diff != "" || err != nil {
		t.Errorf("(-want +got):\n%s %v", diff, err)
	}
}

// What an engine records beside the starts is kept as it is by writers that do not know it,
// and a Lease of an engine that records nothing more does not name it.
func TestMembershipRecordKeepsWhatTheEngineRecords(t *testing.T) {
	client := versioned(fake.NewClientset())
	lease := NewMembershipLease(identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-0"}, nil, func() []metav1.OwnerReference { return nil }, client)
	write := func(change func(*MembershipRecord)) map[string]string {
		record, err := lease.ReadRecord(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		change(&record)
		if err := lease.WriteRecord(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		object, err := client.CoordinationV1().Leases("shop").Get(t.Context(), "orders-members", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return object.Annotations
	}
	const group = `{"format":1}`
	for i, c := range []struct {
		change func(*MembershipRecord)
		want   string
		there  bool
	}{
		{func(r *MembershipRecord) { r.Cluster = "uid" }, "", false},
		{func(r *MembershipRecord) { r.Group = group }, group, true},
		{func(r *MembershipRecord) { *r = r.WithStart(Start{"a", "orders-0", "v0"}) }, group, true},
		{func(r *MembershipRecord) { r.Group = "" }, "", false},
	} {
		if got, there := write(c.change)[AnnotationGroup]; got != c.want || there != c.there {
			t.Errorf("write %d: %q, %t", i, got, there)
		}
	}
}

func TestMembershipRecordKeepsTheNewestStarts(t *testing.T) {
	r := MembershipRecord{}.WithStart(Start{Member: "old", Pod: "orders-0", Volume: "u"})
	for i := range maxStarts + 5 {
		r = r.WithStart(Start{Member: fmt.Sprint(i), Pod: "orders-1", Volume: "v"})
	}
	r = r.WithStart(Start{Member: "7", Pod: "orders-1", Volume: "w"})
	if _, there := r.FindStart("5"); there || len(r.Starts) != maxStarts {
		t.Errorf("%d starts, the oldest among them: %v", len(r.Starts), there)
	}
	if s, _ := r.FindStart("7"); s.Volume != "w" {
		t.Errorf("member 7 is recorded on %q", s.Volume)
	}
	last := []string{r.FindLastMember("orders-0"), r.FindLastMember("orders-1"), r.FindLastMember("orders-2")}
	if diff := cmp.Diff([]string{"old", "7", ""}, last); diff != "" {
		t.Errorf("last of the pods (-want +got):\n%s", diff)
	}
}

func conflict() error {
	return apierrors.NewConflict(coordinationv1.Resource("leases"), "orders-primary", errors.New("modified"))
}
