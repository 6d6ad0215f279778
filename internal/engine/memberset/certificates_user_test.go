package memberset

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// store is the Secrets of users, and how often they were read.
type store struct {
	secrets   map[string]corev1.Secret
	forbidden bool
	reads     int
	// behind says that what tells of versions knows the first only.
	behind bool
}

func (s *store) ReadVersions(_ context.Context, _ types.NamespacedName, names ...string) (map[string]string, error) {
	versions := map[string]string{}
	for name, secret := range s.secrets {
		if slices.Contains(names, name) {
			if versions[name] = secret.ResourceVersion; s.behind {
				versions[name] = "1"
			}
		}
	}
	return versions, nil
}

func (s *store) Read(_ context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	s.reads++
	secret, ok := s.secrets[name.Name]
	switch {
	case s.forbidden:
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name.Name, nil)
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name.Name)
	}
	return &secret, nil
}

func (s *store) put(name, version string, data map[string][]byte) {
	s.secrets[name] = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}, Data: data}
}

func bringing(t *testing.T, tls v1alpha1.TLSSpec) (*MemberEngine, objects.Set, *store) {
	t.Helper()
	s := newMinted(t).set
	s.Cluster.Common().TLS = tls
	users := &store{secrets: map[string]corev1.Secret{}}
	return &MemberEngine{Secrets: users, Clock: clocktesting.NewFakePassiveClock(now)}, s, users
}

func named(name string) *v1alpha1.SecretReference { return &v1alpha1.SecretReference{Name: name} }

// A Secret is read once per version, and what it holds now is what is known.
func TestASecretIsReadOnceAVersion(t *testing.T) {
	k, s, users := bringing(t, v1alpha1.TLSSpec{CASecretRef: named("root")})
	ca, err := pki.NewCA("root", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := map[string][]byte{"tls.crt": ca.CertPEM, "tls.key": ca.KeyPEM}
	for _, step := range []struct {
		name    string
		do      func()
		version string
		fault   string
		reads   int
	}{
		{"it is not there", func() {}, "", "", 0},
		{"it is empty", func() { users.put("root", "1", nil) }, "1", "has no tls.crt", 1},
		{"it is good", func() { users.put("root", "2", good) }, "2", "", 1},
		{"it may not be read", func() { users.put("root", "3", good); users.forbidden = true }, "3", "may not read it", 1},
		{"it may again", func() { users.put("root", "4", good); users.forbidden = false }, "4", "", 1},
		{"it is gone", func() { delete(users.secrets, "root") }, "", "", 0},
	} {
		step.do()
		users.reads = 0
		for range 3 {
			if err := k.observeUserSecrets(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		b := k.secretCache.userCertificates(s).CA
		if b.ResourceVersion != step.version || !strings.Contains(b.FindFault(now), step.fault) || (step.fault == "") != (b.FindFault(now) == "") {
			t.Errorf("%s: version %q, %q", step.name, b.ResourceVersion, b.FindFault(now))
		}
		if users.reads != step.reads {
			t.Errorf("%s: read %d times, want %d", step.name, users.reads, step.reads)
		}
	}
	s.Cluster.Common().TLS = v1alpha1.TLSSpec{}
	if err := k.observeUserSecrets(t.Context(), s); err != nil || k.secretCache.userCertificates(s) != (UserCertificates{}) {
		t.Errorf("what is no longer named is remembered: %v", err)
	}
}

// What was judged is what is used: a Secret that changed in between is not.
func TestASecretThatChangesIsJudgedFirst(t *testing.T) {
	k, s, users := bringing(t, v1alpha1.TLSSpec{CASecretRef: named("root"), CertificateSecretRef: named("server")})
	ca, err := pki.NewCA("root", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, s.Leaf(), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	users.put("root", "1", map[string][]byte{"tls.crt": ca.CertPEM, "tls.key": ca.KeyPEM})
	users.put("server", "1", map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": ca.CertPEM})
	if err := k.observeUserSecrets(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	make := func() map[string][]byte {
		t.Helper()
		data, err := secretMinter{k}.changeMaterial(t.Context(), s, pki.MaterialIssue, k.secretCache.observeSecrets(s, nil, now))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	got := slices.Sorted(maps.Keys(make()))
	if want := []string{"ca.crt", "server-ca.crt", "server.crt", "server.key", "tls.crt", "tls.key"}; !slices.Equal(got, want) {
		t.Errorf("the first members get %v", got)
	}
	users.put("server", "2", nil)
	if make() != nil {
		t.Error("a certificate is used that was not judged")
	}
	users.behind = true
	if err := k.observeUserSecrets(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if b := k.secretCache.userCertificates(s).Server; b == nil || b.ResourceVersion != "2" {
		t.Errorf("what is known to be another is not judged before the watch tells")
	}
	users.put("root", "2", nil)
	if make() != nil {
		t.Error("a CA is used that was not judged")
	}
}

// Where the CA that signed the members' certificate signs no more, the operator
// asks with theirs; and trusts what they show.
func TestTheOperatorIsLetInByWhoIsThere(t *testing.T) {
	w := newMinted(t)
	ca, err := pki.NewCA("root", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	brought := &UserSecret{Name: "root", ResourceVersion: "1", UserProvided: pki.ReadAuthority(
		map[string][]byte{"tls.crt": ca.CertPEM, "tls.key": ca.KeyPEM}, w.set.Leaf(), rand.Reader)}
	for name, tc := range map[string]struct {
		ca    *UserSecret
		own   bool // a certificate for the operator alone
		trust []byte
	}{
		"Holdfast's own":       {nil, true, w.minted.TLS["ca.crt"]},
		"one that is to sign":  {brought, false, pki.JoinBundle(ca.CertPEM, w.minted.TLS["ca.crt"])},
		"one that is not here": {&UserSecret{Name: "root"}, true, w.minted.TLS["ca.crt"]},
	} {
		var v secretCache
		m := w.minted
		m.User.CA = tc.ca
		credentials, ok := v.clientCredentials(w.set, m, now)
		if !ok || (string(credentials.CertPEM) != string(m.TLS["tls.crt"])) != tc.own || string(credentials.CAPEM) != string(tc.trust) {
			t.Errorf("%s: %t\n%s", name, ok, credentials.CAPEM)
		}
	}
	if _, ok := new(secretCache).clientCredentials(w.set, Minted{User: UserCertificates{CA: brought}}, now); ok {
		t.Error("nobody to ask yet, and nothing to ask with")
	}
}

// Rights that are given later are found: nothing tells of them.
func TestASecretThatMayNotBeReadIsTriedAgain(t *testing.T) {
	k, s, users := bringing(t, v1alpha1.TLSSpec{CASecretRef: named("root")})
	ca, err := pki.NewCA("root", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	users.put("root", "1", map[string][]byte{"tls.crt": ca.CertPEM, "tls.key": ca.KeyPEM})
	users.forbidden = true
	if err := k.observeUserSecrets(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	users.forbidden = false
	again := k.secretCache.userCertificates(s).CA.NextCheck(now)
	if !again.After(now) {
		t.Fatal("nobody looks again")
	}
	k.Clock = clocktesting.NewFakePassiveClock(again)
	if err := k.observeUserSecrets(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if fault := k.secretCache.userCertificates(s).CA.FindFault(again); fault != "" {
		t.Error(fault)
	}
}
