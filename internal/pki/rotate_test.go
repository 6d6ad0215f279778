package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"maps"
	"testing"
	"time"
)

const year = 365 * 24 * time.Hour

func TestRotateStep(t *testing.T) {
	old, young := newCA(t, start), newCA(t, start.Add(7*year))
	both := Rollout{BundleServed: true, LeavesMoved: true}

	for _, tc := range []struct {
		name    string
		state   CAState
		rollout Rollout
		after   time.Duration
		want    RotateType
	}{
		{"a new cluster gets a CA", CAState{}, Rollout{}, 0, RotateCreate},
		{"a young CA stays", CAState{Current: old}, both, 6 * year, RotateNone},
		{"past two thirds a next CA is added", CAState{Current: old}, both, 7 * year, RotateAddNext},
		{"the next CA waits for members to trust it", CAState{Current: old, Next: young}, Rollout{LeavesMoved: true}, 7 * year, RotateNone},
		{"trusted by all, it signs", CAState{Current: old, Next: young}, Rollout{BundleServed: true}, 7 * year, RotatePromote},
		{"an expired CA is not waited for", CAState{Current: old, Next: young}, Rollout{}, 11 * year, RotatePromote},
		{"a next CA that expired itself is replaced", CAState{Current: old, Next: young}, both, 20 * year, RotateAddNext},
		{"the retired CA waits for leaves to move", CAState{Current: young, Retired: old.CertPEM}, Rollout{BundleServed: true}, 7 * year, RotateNone},
		{"leaves moved, it is dropped", CAState{Current: young, Retired: old.CertPEM}, both, 7 * year, RotateDropRetired},
		{"a retired CA that expired is dropped", CAState{Current: young, Retired: old.CertPEM}, Rollout{}, 11 * year, RotateDropRetired},
		{"a lost CA that is trusted gets a successor, bundle first", CAState{Retired: old.CertPEM}, both, year, RotateAddNext},
		{"the successor of a lost CA waits too", CAState{Next: young, Retired: old.CertPEM}, Rollout{}, 7 * year, RotateNone},
		{"the successor of a lost and expired CA does not", CAState{Next: young, Retired: old.CertPEM}, Rollout{}, 11 * year, RotatePromote},
		{"a CA lost long ago needs no bridge", CAState{Retired: old.CertPEM}, Rollout{}, 11 * year, RotateCreate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := RotateStep(tc.state.ReadTrust(), tc.rollout, start.Add(tc.after)); got.Type != tc.want || (got.Reason == "") != (tc.want == RotateNone) {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}

// A member takes up bundle and leaf whenever it likes; whatever it holds, it
// and the others must trust each other at every moment of a rotation.
func TestEveryMemberTrustsEveryOtherThroughoutARotation(t *testing.T) {
	type holding struct{ bundle, leaf []byte }
	now := start
	state := step(t, CAState{}, Rollout{}, now, RotateCreate)
	leaf, _ := issue(t, state.Current, member, now)
	members := []holding{{state.TrustedBundle(), leaf}, {state.TrustedBundle(), leaf}}
	check := func(when string) {
		t.Helper()
		for _, reader := range members {
			for _, served := range members {
				if !verifies(t, reader.bundle, served.leaf, now) {
					t.Fatalf("%s: a member is distrusted", when)
				}
			}
		}
	}

	now = start.Add(7 * year)
	leaf, _ = issue(t, state.Current, member, now)
	members[0].leaf, members[1].leaf = leaf, leaf
	state = step(t, state, Rollout{BundleServed: true, LeavesMoved: true}, now, RotateAddNext)
	for i := range members {
		members[i].bundle = state.TrustedBundle()
		check("taking up the longer bundle")
	}
	state = step(t, state, Rollout{BundleServed: true}, now, RotatePromote)
	leaf, _ = issue(t, state.Current, member, now)
	for i := range members {
		members[i] = holding{state.TrustedBundle(), leaf}
		check("taking up the new leaf")
	}
	state = step(t, state, Rollout{BundleServed: true, LeavesMoved: true}, now, RotateDropRetired)
	for i := range members {
		members[i].bundle = state.TrustedBundle()
		check("taking up the shorter bundle")
	}
	if got := RotateStep(state.ReadTrust(), Rollout{}, now); got.Type != RotateNone {
		t.Errorf("the rotation does not end: %+v", got)
	}
	if n := len(certBlocks(state.TrustedBundle())); n != 1 {
		t.Errorf("%d CAs are trusted after the rotation", n)
	}
}

// step does the step that is due, by way of what is stored.
func step(t *testing.T, s CAState, rollout Rollout, now time.Time, want RotateType) CAState {
	t.Helper()
	got := RotateStep(s.ReadTrust(), rollout, now)
	if got.Type != want {
		t.Fatalf("the step is %+v, want %s", got, want)
	}
	s, err := RotateCA(s, got.Type, "orders", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ParseCAState(s.SecretData())
}

func verifies(t *testing.T, bundle, leafPEM []byte, now time.Time) bool {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	leaf, err := parseCert(leafPEM)
	if err != nil {
		t.Fatal(err)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now})
	return err == nil
}

func TestStateSurvivesItsSecret(t *testing.T) {
	a, b, c := newCA(t, start), newCA(t, start), newCA(t, start)
	full := CAState{Current: a, Next: b, Retired: c.CertPEM}
	for name, s := range map[string]CAState{
		"nothing":                   {},
		"a CA":                      {Current: a},
		"one that is to follow":     {Current: a, Next: b},
		"one that is retired":       {Current: a, Retired: c.CertPEM},
		"all of them":               full,
		"a successor of a lost one": {Next: b, Retired: c.CertPEM},
	} {
		got := ParseCAState(s.SecretData())
		if !maps.EqualFunc(got.SecretData(), s.SecretData(), bytes.Equal) {
			t.Errorf("%s: comes back as another state", name)
		}
	}
}

func TestALostKeyKeepsItsCertificateTrusted(t *testing.T) {
	a := newCA(t, start)
	for name, damage := range map[string]func(map[string][]byte){
		"the key is gone":            func(d map[string][]byte) { delete(d, keyCurrentKey) },
		"the certificate is damaged": func(d map[string][]byte) { d[keyCurrentCert] = []byte("x") },
		"the bundle is gone too": func(d map[string][]byte) {
			delete(d, keyCurrentKey)
			delete(d, keyBundle)
		},
	} {
		data := CAState{Current: a}.SecretData()
		damage(data)
		s := ParseCAState(data)
		if s.Current != nil || !bytes.Equal(s.TrustedBundle(), a.CertPEM) {
			t.Errorf("%s: current is %v and the bundle\n%s", name, s.Current, s.TrustedBundle())
		}
		if got := RotateStep(s.ReadTrust(), Rollout{}, start); got.Type != RotateAddNext {
			t.Errorf("%s: the step is %+v", name, got)
		}
	}
}

func TestRotateRefusesWhatTheStateDoesNotAllow(t *testing.T) {
	if _, err := RotateCA(CAState{}, RotatePromote, "orders", start, rand.Reader); err == nil {
		t.Error("promoted a CA that does not exist")
	}
	if _, err := RotateCA(CAState{}, "Nonsense", "orders", start, rand.Reader); err == nil {
		t.Error("did a step of an unknown type")
	}
}
