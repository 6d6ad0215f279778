package postgres

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// userCertificate is a Secret of a user's that is there.
func userCertificate(name string, given pki.UserProvided) *memberset.UserSecret {
	return &memberset.UserSecret{Name: name, ResourceVersion: "1", UserProvided: given}
}

// server is a good certificate for clients, of a CA of its own.
func server(w *world) pki.UserProvided {
	w.t.Helper()
	ca, err := pki.NewCA("of the user", now, rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	s := membersOf(w.c)
	certPEM, keyPEM, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: "x", DNSNames: s.ServerNames()}, now, rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	return pki.ReadServer(map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": ca.CertPEM}, s.ServerNames())
}

// What spec.tls names is taken into use step by step, and what is wrong with
// it is said.
func TestPlanOfBroughtCertificates(t *testing.T) {
	trusts := func(w *world) {
		given := server(w)
		w.o.Minted.TLS = pki.WithServerTrust(w.o.Minted.TLS, given.Roots)
		w.o.Minted.User.Server = userCertificate("server", given)
	}
	loads := func(w *world, ordinals ...int) {
		for _, n := range ordinals {
			w.status(n).TLSHash = agentapi.HashTLS(w.o.Minted.TLS)
		}
	}
	for _, tc := range []struct {
		name string
		do   func(*world)
		step string // and its target
		fact string // type, reason and a part of the message
	}{
		{"the root is trusted first", func(w *world) {
			w.o.Minted.User.Server = userCertificate("server", server(w))
		}, "TrustServerCA orders-tls", "Reconciling Configuring the certificate of another CA"},
		{"a member has not taken it up", func(w *world) {
			trusts(w)
			loads(w, 0)
		}, "", "Reconciling Configuring members take up the CA"},
		{"all have", func(w *world) {
			trusts(w)
			loads(w, 0, 1)
		}, "ServeCertificate orders-tls", "Reconciling Configuring another certificate"},
		{"a member without a node is not waited for", func(w *world) {
			trusts(w)
			loads(w, 0, 1)
			w.declareReplicas(3)
			w.volume(2, true)
			w.pod(2).Spec.NodeName = ""
		}, "ServeCertificate orders-tls", "Reconciling Configuring another certificate"},
		{"an agent of before knows nothing of it", func(w *world) {
			trusts(w)
			for n := range 2 {
				w.status(n).TLSHash = ""
				w.o.Pods[n].Spec.InitContainers[0].Image = "holdfast:old"
			}
		}, "ReplaceMember orders-1", "Reconciling Configuring members take up the CA"},
		{"an agent that the operator would inject again is left alone", func(w *world) {
			trusts(w)
			w.status(1).TLSHash = ""
		}, "", "Reconciling Configuring members take up the CA"},
		{"the Secret is missing", func(w *world) {
			w.o.Minted.User.Server = &memberset.UserSecret{Name: "server"}
		}, "", `Stalled SecretMissing spec.tls.certificateSecretRef: there is no Secret "server" in this namespace`},
		{"the Secret is of no use", func(w *world) {
			w.o.Minted.User.Server = userCertificate("server", pki.ReadServer(nil, nil))
		}, "", `Stalled CertificateRefused spec.tls.certificateSecretRef: Secret "server": it has no tls.crt`},
		{"the CA is missing", func(w *world) {
			w.o.Minted.User.CA = &memberset.UserSecret{Name: "root"}
		}, "", `Stalled SecretMissing spec.tls.caSecretRef: there is no Secret "root"`},
		{"the CA is missing from the beginning", func(w *world) {
			*w = *newWorld(w.t, 2)
			w.o.Minted.Internal = map[string][]byte{keyAppPassword: []byte("secret")}
			w.o.Minted.User.CA = &memberset.UserSecret{Name: "root"}
		}, "", `Stalled SecretMissing spec.tls.caSecretRef: there is no Secret "root" in this namespace: create it with tls.crt and tls.key, or name another; until then no member is made`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 2)
			tc.do(w)
			p := w.plan()
			step := ""
			if p.Step != nil {
				step = p.Step.Type + " " + p.Step.Target
			}
			if step != tc.step {
				t.Errorf("the step is %q, want %q", step, tc.step)
			}
			want := strings.SplitN(tc.fact, " ", 3)
			if !holds(p.Facts, want[0], want[1], want[2]) {
				t.Errorf("no %s among %+v", tc.fact, p.Facts)
			}
		})
	}
}

func holds(facts []condition.Fact, kind, reason, words string) bool {
	for _, f := range facts {
		if f.Type == kind && f.Reason == reason && strings.Contains(f.Message, words) {
			return true
		}
	}
	return false
}

// Plans with nothing of a user's say nothing of certificates.
func TestOwnCertificatesAreQuiet(t *testing.T) {
	w := settled(t, 2)
	w.status(1).TLSHash = "another" // the kubelet is behind
	for _, f := range w.plan().Facts {
		if f.Reason == v1alpha1.ReasonConfiguring {
			t.Errorf("%+v", f)
		}
	}
}
