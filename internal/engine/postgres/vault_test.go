package postgres

import (
	"bytes"
	"crypto/ecdsa"
	"maps"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/pki"
)

// What the vault says of certificates is what the newest of them say, and they
// are not read again while they are the same.
func TestVaultReadsCertificatesOnce(t *testing.T) {
	w, other := newWorld(t, 1), newWorld(t, 1)
	w.mint()
	other.mint()
	var v vault
	if read := v.observe(w.c, nil).read; read.trust.Signs() || read.leaf.Serial() != "" {
		t.Fatalf("an empty vault knows %+v", read)
	}
	for _, put := range []struct {
		name, suffix string
		data         map[string][]byte
		signs, stale bool
	}{
		{"a CA without a leaf", suffixCA, w.o.Minted.CA, true, true},
		{"its leaf", suffixTLS, w.o.Minted.TLS, true, false},
		{"the leaf of another CA", suffixTLS, other.o.Minted.TLS, true, true},
		{"that CA", suffixCA, other.o.Minted.CA, true, false},
		{"a CA that is damaged", suffixCA, map[string][]byte{"tls.crt": []byte("x")}, false, false},
	} {
		v.put(w.c, w.c.Name+put.suffix, put.data)
		m := v.observe(w.c, nil)
		if _, stale := m.read.stale(now); m.read.trust.Signs() != put.signs || stale != put.stale {
			t.Errorf("%s: signs %t and stale %t, want %t and %t", put.name, m.read.trust.Signs(), stale, put.signs, put.stale)
		}
		if got, want := m.read.leaf.Serial(), pki.Serial(m.TLS["tls.crt"]); got != want {
			t.Errorf("%s: serial %q, want %q", put.name, got, want)
		}
		if again := v.observe(w.c, nil); again.read != m.read {
			t.Errorf("%s: read twice", put.name)
		}
	}
}

// A Secret that the cache shows later is read too; once it is known, the cache's
// copy is the only one, and an edited one changes nothing.
func TestVaultReadsWhatTheCacheShows(t *testing.T) {
	w := newWorld(t, 1)
	w.mint()
	var v vault
	v.observe(w.c, nil)
	for suffix, data := range map[string]map[string][]byte{suffixCA: w.o.Minted.CA, suffixTLS: w.o.Minted.TLS} {
		v.observe(w.c, []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: w.c.Name + suffix}, Data: data}})
	}
	seen := v.observe(w.c, nil)
	same := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.c.Name + suffixCA}, Data: maps.Clone(seen.CA)}
	if m := v.observe(w.c, []corev1.Secret{same}); m.read != seen.read || reflect.ValueOf(m.CA).Pointer() != reflect.ValueOf(same.Data).Pointer() {
		t.Error("what the cache holds is held twice")
	}
	edited := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: w.c.Name + suffixCA}, Data: map[string][]byte{"tls.crt": []byte("x")}}
	read := v.observe(w.c, []corev1.Secret{edited}).read
	if _, stale := read.stale(now); stale || !read.trust.Signs() {
		t.Errorf("stale %t, signs %t", stale, read.trust.Signs())
	}
}

// The vault issues the operator's certificate once for a CA, and forgets it and
// everything else with the cluster.
func TestVaultForgetsWithTheCluster(t *testing.T) {
	w := newWorld(t, 1)
	w.mint()
	var v vault
	v.put(w.c, w.c.Name+suffixCA, w.o.Minted.CA)
	issue := func() []byte {
		t.Helper()
		credentials, ok := v.client(w.c, v.observe(w.c, nil), now)
		if !ok || !bytes.Equal(credentials.CAPEM, w.o.Minted.CA["ca.crt"]) {
			t.Fatalf("no certificate under the CA: %t", ok)
		}
		return credentials.CertPEM
	}
	first := issue()
	if !bytes.Equal(first, issue()) {
		t.Error("issued twice under one CA")
	}
	v.forget(client.ObjectKeyFromObject(w.c))
	if m := v.observe(w.c, nil); m.CA != nil || m.read.trust.Signs() {
		t.Error("what was minted outlives the cluster")
	}
	v.put(w.c, w.c.Name+suffixCA, w.o.Minted.CA)
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
	w := newWorld(t, 1)
	w.mint()
	if bytes.Contains(w.o.Minted.certificates(w.c).trust.Bundle, []byte("PRIVATE KEY")) {
		t.Error("the bundle holds a key")
	}
}
