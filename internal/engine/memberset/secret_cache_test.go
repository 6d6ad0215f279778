package memberset

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"maps"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// now is when the certificates of the tests are issued.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// minted is a cluster whose certificates exist.
type minted struct {
	set    objects.Set
	minted Minted
}

func newMinted(t *testing.T) minted {
	t.Helper()
	cluster := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "cluster-uid"}}
	s := objects.Set{Kind: objects.Kind{GVK: v1alpha1.GroupVersion.WithKind("PostgresCluster"), Container: "db", Clients: []string{"-rw"}}, Cluster: cluster}
	ca, err := pki.NewCA("test", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	state := pki.CAState{Current: ca}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, s.Leaf(), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return minted{s, Minted{CA: state.SecretData(), TLS: map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": state.TrustedBundle()}}}
}

// What the cache of Secrets says of certificates is what the newest of them say, and they
// are not read again while they are the same.
func TestSecretCacheReadsCertificatesOnce(t *testing.T) {
	w, other := newMinted(t), newMinted(t)
	var v secretCache
	if read := v.observeSecrets(w.set, nil, now).read; read.trust.CanSign() || read.material.MemberLeaf().SerialNumber() != "" {
		t.Fatalf("an empty vault knows %+v", read)
	}
	for _, put := range []struct {
		name, suffix string
		data         map[string][]byte
		signs, stale bool
	}{
		{"a CA without a leaf", objects.SuffixCA, w.minted.CA, true, true},
		{"its leaf", objects.SuffixTLS, w.minted.TLS, true, false},
		{"the leaf of another CA", objects.SuffixTLS, other.minted.TLS, true, true},
		{"that CA", objects.SuffixCA, other.minted.CA, true, false},
		{"a CA that is damaged", objects.SuffixCA, map[string][]byte{"tls.crt": []byte("x")}, false, false},
	} {
		v.rememberSecret(w.set, w.set.Named(put.suffix), put.data)
		m := v.observeSecrets(w.set, nil, now)
		if stale := !m.read.material.IsSettled(now); m.read.trust.CanSign() != put.signs || stale != put.stale {
			t.Errorf("%s: signs %t and stale %t, want %t and %t", put.name, m.read.trust.CanSign(), stale, put.signs, put.stale)
		}
		if got, want := m.read.material.MemberLeaf().SerialNumber(), pki.ReadSerial(m.TLS["tls.crt"]); got != want {
			t.Errorf("%s: serial %q, want %q", put.name, got, want)
		}
		if again := v.observeSecrets(w.set, nil, now); again.read != m.read {
			t.Errorf("%s: read twice", put.name)
		}
	}
}

// A Secret that the cache shows later is read too; once it is known, the cache's
// copy is the only one, and an edited one changes nothing.
func TestSecretCacheReadsWhatTheCacheShows(t *testing.T) {
	w := newMinted(t)
	var v secretCache
	v.observeSecrets(w.set, nil, now)
	for suffix, data := range map[string]map[string][]byte{objects.SuffixCA: w.minted.CA, objects.SuffixTLS: w.minted.TLS} {
		v.observeSecrets(w.set, []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: w.set.Named(suffix)}, Data: data}}, now)
	}
	seen := v.observeSecrets(w.set, nil, now)
	same := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.set.Named(objects.SuffixCA)}, Data: maps.Clone(seen.CA)}
	if m := v.observeSecrets(w.set, []corev1.Secret{same}, now); m.read != seen.read || reflect.ValueOf(m.CA).Pointer() != reflect.ValueOf(same.Data).Pointer() {
		t.Error("what the cache holds is held twice")
	}
	edited := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.set.Named(objects.SuffixCA)}, Data: map[string][]byte{"tls.crt": []byte("x")}}
	read := v.observeSecrets(w.set, []corev1.Secret{edited}, now).read
	if stale := !read.material.IsSettled(now); stale || !read.trust.CanSign() {
		t.Errorf("stale %t, signs %t", stale, read.trust.CanSign())
	}
}

// The cache of Secrets issues the operator's certificate once for a CA, and forgets it and
// everything else with the cluster.
func TestSecretCacheForgetsWithTheCluster(t *testing.T) {
	w := newMinted(t)
	var v secretCache
	v.rememberSecret(w.set, w.set.Named(objects.SuffixCA), w.minted.CA)
	issue := func() []byte {
		t.Helper()
		credentials, ok := v.clientCredentials(w.set, v.observeSecrets(w.set, nil, now), now)
		if !ok || !bytes.Equal(credentials.CAPEM, w.minted.CA["ca.crt"]) {
			t.Fatalf("no certificate under the CA: %t", ok)
		}
		return credentials.CertPEM
	}
	first := issue()
	if !bytes.Equal(first, issue()) {
		t.Error("issued twice under one CA")
	}
	v.forgetCluster(w.set.Key())
	if m := v.observeSecrets(w.set, nil, now); m.CA != nil || m.read.trust.CanSign() {
		t.Error("what was minted outlives the cluster")
	}
	v.rememberSecret(w.set, w.set.Named(objects.SuffixCA), w.minted.CA)
	if bytes.Equal(first, issue()) {
		t.Error("the operator's key outlives the cluster")
	}
}

// What is kept of certificates has no place for a private key.
func TestCertificatesHoldNoKey(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		case reflect.Interface, reflect.Func:
			t.Errorf("%s can hold anything", typ)
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(typ.Field(i).Type)
			}
		}
	}
	walk(reflect.TypeFor[certificates]())
	for _, secret := range []reflect.Type{reflect.TypeFor[ecdsa.PrivateKey](), reflect.TypeFor[pki.CA]()} {
		if seen[secret] {
			t.Errorf("certificates hold a %s", secret)
		}
	}
	w := newMinted(t)
	if bytes.Contains(w.minted.readCertificates(w.set, now).trust.Bundle, []byte("PRIVATE KEY")) {
		t.Error("the bundle holds a key")
	}
}
