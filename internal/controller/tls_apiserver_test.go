//go:build apiserver

package controller_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/pki"
)

func userCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA("of the user", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// certificate for a cluster orders, as cert-manager writes it.
func (w *world) certificate(ca *pki.CA, names ...string) map[string][]byte {
	w.t.Helper()
	if len(names) == 0 {
		names = []string{"orders-rw", "orders-ro", "*.orders-members"}
	}
	request := pki.LeafRequest{CommonName: "orders"}
	for _, name := range names {
		request.DNSNames = append(request.DNSNames, name+"."+w.Namespace+".svc")
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, request, time.Now(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": ca.CertPEM}
}

func (w *world) secret(name string, data map[string][]byte) *corev1.Secret {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data}
	w.create(s)
	return s
}

// awaitSecret waits until a Secret of a cluster is as a condition says.
func (w *world) awaitSecret(name, what string, holds func(map[string]string) bool) map[string]string {
	w.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	text := map[string]string{}
	apitest.Eventually(w.t, what, func(context.Context) (bool, string) {
		w.get(s)
		text = map[string]string{}
		for k, v := range s.Data {
			text[k] = string(v)
		}
		return holds(text), fmt.Sprint(slices.Sorted(maps.Keys(text)))
	})
	return text
}

func (w *world) awaitStalled(c *v1alpha1.PostgresCluster, reason string, words ...string) {
	w.t.Helper()
	await(w, c, "Stalled "+reason, func(c *v1alpha1.PostgresCluster) bool {
		message := conditions.GetMessage(c, v1alpha1.ConditionStalled)
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == reason && conditions.IsTrue(c, v1alpha1.ConditionAvailable) &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
	})
}

// A certificate of one's own comes into use, is renewed, and goes again, and no
// pod is replaced for it. One that is missing or cannot be used changes nothing.
func TestCertificateOfOnesOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	settled, o := w.settled(3)
	c := asPostgres(settled)
	pods, ca := w.podUIDs(c), userCA(t)
	own := w.awaitSecret("orders-app", "the CA", func(s map[string]string) bool { return s["ca.crt"] != "" })["ca.crt"]

	edit(w, c, func(c *v1alpha1.PostgresCluster) {
		c.Spec.TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "mine"}
	})
	w.awaitStalled(c, v1alpha1.ReasonSecretMissing, "spec.tls.certificateSecretRef", `"mine"`)
	data := w.certificate(ca)
	mine := w.secret("mine", data)
	w.awaitReady(c)
	served := w.awaitSecret("orders-tls", "it is served alone", func(s map[string]string) bool {
		return s["server.crt"] == string(data["tls.crt"]) && s["server.key"] == string(data["tls.key"]) && s["server-ca.crt"] == string(ca.CertPEM)
	})
	if served["ca.crt"] != own {
		t.Error("whoever has a certificate of the user's CA can become a member")
	}
	w.awaitSecret("orders-app", "clients get its CA", func(s map[string]string) bool { return s["ca.crt"] == string(ca.CertPEM) })
	w.awaitSteady(o)
	w.nudge(c)
	if seen := o.take(); len(seen) > 0 {
		t.Errorf("a steady cluster with a certificate of its user's sends %v", seen)
	}

	renewed := w.certificate(ca)
	edit(w, mine, func(s *corev1.Secret) { s.Data = renewed })
	w.awaitSecret("orders-tls", "the renewed one is served", func(s map[string]string) bool { return s["server.crt"] == string(renewed["tls.crt"]) })

	edit(w, mine, func(s *corev1.Secret) { s.Data = w.certificate(ca, "orders-rw", "*.orders-members") })
	w.awaitStalled(c, v1alpha1.ReasonCertificateRefused, "spec.tls.certificateSecretRef", "orders-ro."+w.Namespace+".svc: add them")
	if err := w.person.Delete(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	w.awaitStalled(c, v1alpha1.ReasonSecretMissing)
	tls := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-tls"}}
	edit(w, tls, func(s *corev1.Secret) { s.Data["server.crt"] = data["tls.crt"] })
	w.awaitSecret("orders-tls", "the last good one stays, and drift is put back", func(s map[string]string) bool {
		return s["server.crt"] == string(renewed["tls.crt"])
	})
	await(w, c, "the drift is recorded", func(c *v1alpha1.PostgresCluster) bool {
		return c.Status.Drift != nil && slices.ContainsFunc(c.Status.Drift.Last, func(d v1alpha1.DriftRecord) bool { return d.Object == "Secret/orders-tls" })
	})

	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.TLS = v1alpha1.TLSSpec{} })
	w.awaitReady(c)
	w.awaitSecret("orders-tls", "nothing of it is left", func(s map[string]string) bool { return len(s) == 3 })
	w.awaitSecret("orders-app", "clients get the CA of before", func(s map[string]string) bool { return s["ca.crt"] == own })
	if after := w.podUIDs(c); !maps.Equal(pods, after) {
		t.Errorf("pods were replaced: %v, before %v", after, pods)
	}
}

// A CA of one's own signs from the first certificate on, is replaced bundle
// first, and gives way to a CA of Holdfast's.
func TestCAOfOnesOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.NewPostgresCluster("orders", 2)
	c.Spec.TLS.CASecretRef = &v1alpha1.SecretReference{Name: "root"}
	w.create(c)
	o := w.operate(0)
	await(w, c, "the Secret is missing", func(c *v1alpha1.PostgresCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonSecretMissing
	})
	old, young := userCA(t), userCA(t)
	root := w.secret("root", map[string][]byte{"tls.crt": old.CertPEM, "tls.key": old.KeyPEM})
	w.awaitReady(c)
	settled := func(ca *pki.CA) func(map[string]string) bool {
		return func(s map[string]string) bool {
			return ca.HasSigned([]byte(s["tls.crt"])) && s["ca.crt"] == string(ca.CertPEM)
		}
	}
	w.awaitSecret("orders-tls", "the CA signs", settled(old))
	if names := w.objects(c)["Secret"]; slices.Contains(names, "orders-ca") {
		t.Error("Holdfast made a CA of its own, too")
	}
	pods := w.podUIDs(c)
	edit(w, root, func(s *corev1.Secret) { s.Data = map[string][]byte{"tls.crt": young.CertPEM, "tls.key": young.KeyPEM} })
	w.awaitSecret("orders-tls", "the new CA signs", settled(young))
	w.awaitReady(c)
	w.awaitSteady(o)

	edit(w, root, func(s *corev1.Secret) { s.Data["tls.key"] = old.KeyPEM })
	w.awaitStalled(c, v1alpha1.ReasonCertificateRefused, "spec.tls.caSecretRef", "tls.key does not belong")
	o.stop()
	w.operate(0) // knows nothing but what is there
	await(w, c, "Stalled again", func(c *v1alpha1.PostgresCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonCertificateRefused && conditions.IsTrue(c, v1alpha1.ConditionAvailable)
	})
	w.awaitSecret("orders-tls", "the last good one stays", settled(young))

	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.TLS = v1alpha1.TLSSpec{} })
	w.awaitReady(c)
	minted := w.awaitSecret("orders-ca", "a CA of Holdfast's own", func(s map[string]string) bool {
		return s["tls.crt"] != "" && s["ca.crt"] == s["tls.crt"]
	})
	own, err := pki.ParseCA([]byte(minted["tls.crt"]), []byte(minted["tls.key"]))
	if err != nil {
		t.Fatal(err)
	}
	w.awaitSecret("orders-tls", "it signs", settled(own))

	edit(w, root, func(s *corev1.Secret) { s.Data = map[string][]byte{"tls.crt": old.CertPEM, "tls.key": old.KeyPEM} })
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.TLS.CASecretRef = &v1alpha1.SecretReference{Name: "root"} })
	w.awaitReady(c)
	w.awaitSecret("orders-tls", "the user's signs again", settled(old))
	w.awaitSecret("orders-ca", "Holdfast's own is kept", func(s map[string]string) bool { return s["tls.key"] == minted["tls.key"] })
	if after := w.podUIDs(c); !maps.Equal(pods, after) {
		t.Errorf("pods were replaced: %v, before %v", after, pods)
	}
}

// nudge makes passes over a steady cluster.
func (w *world) nudge(c *v1alpha1.PostgresCluster) {
	for range 10 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(100 * time.Millisecond)
	}
}
