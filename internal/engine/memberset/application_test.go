package memberset

import (
	"crypto/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Applications that log in by a certificate get one when the members have
// theirs, and another when the CA that signs is another.
func TestApplicationCertificate(t *testing.T) {
	w := newMinted(t)
	w.set.Application = "app"
	next := func() string {
		t.Helper()
		if s := mintStep(w.set, Observation{Minted: w.minted}, now); s != nil {
			return s.Type
		}
		return ""
	}
	if w.minted.IsComplete(w.set) || next() != stepIssueAppCert {
		t.Fatalf("without a certificate: %q", next())
	}
	certPEM, keyPEM, err := pki.IssueLeaf(pki.ParseCAState(w.minted.CA).Current, objects.ClientLeaf(w.set.Application), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w.minted.Internal = map[string][]byte{KeyAppCert: certPEM, KeyAppKey: keyPEM}
	if !w.minted.IsComplete(w.set) || next() != "" {
		t.Errorf("with one: %q", next())
	}
	other := newMinted(t)
	w.minted.CA, w.minted.TLS = other.minted.CA, other.minted.TLS
	if next() != stepIssueAppCert {
		t.Errorf("under another CA: %q", next())
	}
}

// Jobs that copy get a certificate of their own. No member waits for it, and a CA that
// signed it is trusted until there is another one.
func TestCopierCertificate(t *testing.T) {
	w := newMinted(t)
	w.set.Copier = "copier"
	next := func() string {
		t.Helper()
		if s := mintStep(w.set, Observation{Minted: w.minted}, now); s != nil {
			return s.Type
		}
		return ""
	}
	if !w.minted.IsComplete(w.set) || next() != stepIssueCopierCert {
		t.Fatalf("without a certificate: %q", next())
	}
	certPEM, keyPEM, err := pki.IssueLeaf(pki.ParseCAState(w.minted.CA).Current, objects.ClientLeaf(w.set.Copier), now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w.minted.Internal = map[string][]byte{KeyCopierCert: certPEM, KeyCopierKey: keyPEM}
	if next() != "" {
		t.Errorf("with one: %q", next())
	}
	// Another CA signs by now, and the former one is still trusted.
	other := newMinted(t)
	state := pki.ParseCAState(other.minted.CA)
	state.Retired = pki.ParseCAState(w.minted.CA).TrustedBundle()
	w.minted.CA = state.SecretData()
	w.minted.TLS = pki.WithTrust(other.minted.TLS, state.TrustedBundle())
	if next() != stepIssueCopierCert {
		t.Errorf("under another CA: %q", next())
	}
}

// A database that trusts the CAs that it was started with has not
// loaded what it mounts.
func TestTrustIsLoadedByARestart(t *testing.T) {
	w := newMinted(t)
	read := w.minted.readCertificates(w.set, now)
	status := &agentapi.Status{PodUID: "1", TLSHash: agentapi.HashTLS(w.minted.TLS)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orders-0", UID: "1"}, Spec: corev1.PodSpec{NodeName: "node"}}
	o := Observation{Minted: w.minted, Pods: map[int]*corev1.Pod{0: pod}, Members: map[string]agentclient.Observation{"orders-0": {Status: status}}}
	for hash, want := range map[string]bool{"": true, agentapi.HashConfig(w.minted.TLS["ca.crt"]): true, "another": false} {
		status.TrustHash = hash
		if got := o.allUseCertificates(read); got != want {
			t.Errorf("trust %q: loaded is %t", hash, got)
		}
	}
}
