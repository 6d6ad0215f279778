package apply

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// withoutGoType is an apply configuration without a Go type of its own.
func withoutGoType(t *testing.T, ac runtime.ApplyConfiguration) runtime.ApplyConfiguration {
	t.Helper()
	data, err := json.Marshal(ac)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return client.ApplyConfigurationFromUnstructured(u)
}

// What an apply configuration names is known before it is decoded, and is what
// decoding shows.
func TestDesiredIsTheSameOfEveryType(t *testing.T) {
	budget := policyv1ac.PodDisruptionBudget("orders", "shop")
	secret := corev1ac.Secret("orders-app", "shop").WithStringData(map[string]string{"user": "app"})
	for _, tc := range []struct {
		ac   runtime.ApplyConfiguration
		want ObjectID
	}{
		{budget, ObjectID{schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, "shop", "orders"}},
		{secret, ObjectID{schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "shop", "orders-app"}},
	} {
		typed, err := newDesired(tc.ac)
		if err != nil || typed.id != tc.want || typed.content != nil {
			t.Fatalf("%s before it is decoded: %v, %v", tc.want, typed, err)
		}
		if err := typed.decodeRendering(); err != nil || typed.id != tc.want || typed.hash == "" {
			t.Fatalf("%s decoded: %v, %v", tc.want, typed, err)
		}
		untyped, err := newDesired(withoutGoType(t, tc.ac))
		if err != nil || untyped.id != tc.want || untyped.hash != typed.hash {
			t.Errorf("%s without a type: %v, %v; want the hash %s", tc.want, untyped, err, typed.hash)
		}
		if got, _, _ := unstructured.NestedString(typed.content, "metadata", "annotations", v1alpha1.AnnotationAppliedHash); got != typed.hash {
			t.Errorf("%s is annotated with %q, want %q", tc.want, got, typed.hash)
		}
	}
}

func TestDesiredNeedsAName(t *testing.T) {
	ac := corev1ac.Secret("", "shop")
	for _, nameless := range []runtime.ApplyConfiguration{ac, withoutGoType(t, ac)} {
		if _, err := newDesired(nameless); err == nil || !strings.Contains(err.Error(), "Secret without a name") {
			t.Errorf("%T: %v", nameless, err)
		}
	}
}

// A rendering that was judged last has the hash of then; any other one is
// decoded.
func TestHashOfAKnownRendering(t *testing.T) {
	render := func(user string) *desired {
		t.Helper()
		d, err := newDesired(corev1ac.Secret("orders-app", "shop").WithStringData(map[string]string{"user": user}))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := render("app")
	known := &ownerMemory{objects: map[ObjectID]*record{}}
	if err := known.computeHash(first); err != nil || first.content == nil {
		t.Fatalf("the first one is not decoded: %v", err)
	}
	known.objects[first.id] = &record{judged: judged{rendering: first.rendering, desired: first.hash}}
	same, other := render("app"), render("somebody")
	if err := known.computeHash(same); err != nil || same.hash != first.hash || same.content != nil {
		t.Errorf("the same one: hash %q, want %q; content %v, want none; %v", same.hash, first.hash, same.content, err)
	}
	if err := known.computeHash(other); err != nil || other.hash == first.hash || other.content == nil {
		t.Errorf("another one: hash %q, content %v, %v", other.hash, other.content, err)
	}
}
