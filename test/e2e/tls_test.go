//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// tlsTimeout is for kubelets to refresh what is mounted, three times over: a
// CA changes in that many steps.
const tlsTimeout = 8 * time.Minute

func userCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA("of the user", time.Now(), rand.Reader)
	must(t, err, "make a CA")
	return ca
}

// issueCertificate issues one for the cluster, as cert-manager writes it, and its serial
// number.
func (c *cluster) issueCertificate(ca *pki.CA) (map[string][]byte, string) {
	c.t.Helper()
	request := pki.LeafRequest{CommonName: c.name}
	for _, host := range []string{c.name + "-rw", c.name + "-ro", "*." + c.name + "-members"} {
		request.DNSNames = append(request.DNSNames, host+"."+c.namespace+".svc")
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, request, time.Now(), rand.Reader)
	must(c.t, err, "sign a certificate")
	return map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": ca.CertPEM}, pki.ReadSerial(certPEM)
}

// giveSecret puts data into a Secret of the user's.
func (c *subject) giveSecret(name string, data map[string][]byte) {
	c.t.Helper()
	s := &corev1.Secret{Type: corev1.SecretTypeOpaque, Data: data}
	s.Namespace, s.Name = c.namespace, name
	err := env.client.Create(c.t.Context(), s)
	if apierrors.IsAlreadyExists(err) {
		err = env.client.Update(c.t.Context(), s)
	}
	must(c.t, err, "write Secret "+name)
}

// awaitCertificate waits until every member shows clients the certificate with a serial
// number, and lets them in who trust the CA.
func (c *cluster) awaitCertificate(app *clientPod, members int, ca *pki.CA, serial string) {
	c.t.Helper()
	app.writeFile(c.t, "/tmp/roots.crt", string(ca.CertPEM))
	secret := c.readSecret("-app")
	conninfo := func(host string) string {
		return fmt.Sprintf("host=%s.%s.svc port=5432 user=%s password=%s dbname=%s sslrootcert=/tmp/roots.crt sslmode=verify-full",
			host, c.namespace, secret["username"], secret["password"], secret["dbname"])
	}
	for n := range members {
		eventually(c.t, tlsTimeout, c.podName(n)+" shows the certificate "+serial, func(ctx context.Context) error {
			file, err := runCommand(ctx, c.namespace, c.podName(n), "", "cat", "/run/holdfast/tls/server.crt")
			if err != nil {
				return err
			}
			if got := pki.ReadSerial([]byte(file)); got != serial {
				return fmt.Errorf("it has %s", got)
			}
			_, err = app.runPsql(ctx, conninfo(c.podName(n)+"."+c.name+"-members"), "select 1")
			return err
		})
	}
	for _, suffix := range []string{"-rw", "-ro"} {
		app.mustPsql(c.t, conninfo(c.name+suffix), "select 1")
	}
}

// awaitStreaming makes every replica connect anew, and waits until it streams.
func (c *cluster) awaitStreaming(replicas int) {
	c.t.Helper()
	since := strings.TrimSpace(c.runSQL(leading, "select clock_timestamp()"))
	c.runSQL(leading, "select pg_terminate_backend(pid) from pg_stat_replication")
	eventually(c.t, serviceTimeout, "replicas stream", func(ctx context.Context) error {
		got, err := runLocalQuery(ctx, c.namespace, c.podName(leading), "app", fmt.Sprintf("select count(*) from pg_stat_replication where state = 'streaming' and backend_start > '%s'", since))
		if err == nil && strings.TrimSpace(got) != fmt.Sprint(replicas) {
			err = errors.New(got + " do")
		}
		return err
	})
}

// certificateOfOnesOwn: it is shown, renewed, replaced by that of another CA,
// and no member notices but that it is reloaded. One that does not fit changes
// nothing.
func certificateOfOnesOwn(t *testing.T) {
	c := newCluster(t, 2)
	c.waitReady()
	app, before := newClient(t), []string{c.podIncarnation(0), c.podIncarnation(1)}
	w := c.startWriter()
	ca, other := userCA(t), userCA(t)
	data, serial := c.issueCertificate(ca)
	c.giveSecret("server", data)
	c.editCluster(func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "server"}
	})
	c.waitReady()
	c.awaitCertificate(app, 2, ca, serial)
	c.awaitStreaming(1)
	eventually(t, tlsTimeout, "applications get its CA alone", func(context.Context) error {
		if got := c.readSecret("-app")["ca.crt"]; string(got) != string(ca.CertPEM) {
			return fmt.Errorf("they get\n%s", got)
		}
		return nil
	})

	data, serial = c.issueCertificate(ca)
	c.giveSecret("server", data)
	c.awaitCertificate(app, 2, ca, serial)

	broken := map[string][]byte{"tls.crt": data["tls.crt"], "tls.key": other.KeyPEM, "ca.crt": ca.CertPEM}
	c.giveSecret("server", broken)
	c.waitStalled(v1alpha1.ReasonCertificateRefused, "spec.tls.certificateSecretRef", "tls.key does not belong")
	c.awaitCertificate(app, 2, ca, serial)

	data, serial = c.issueCertificate(other)
	c.giveSecret("server", data)
	c.awaitCertificate(app, 2, other, serial)
	c.awaitStreaming(1)
	c.waitReady()

	c.editCluster(func(obj *v1alpha1.PostgresCluster) { obj.Spec.TLS = v1alpha1.TLSSpec{} })
	c.waitReady()
	c.awaitStreaming(1)
	w.stopWriting()
	for n, was := range before {
		if now := c.podIncarnation(n); now != was {
			t.Errorf("%s, before %s", now, was)
		}
	}
}

// caOfOnesOwn: it signs from the first certificate on, and is replaced while
// replicas stream.
func caOfOnesOwn(t *testing.T) {
	old, young := userCA(t), userCA(t)
	pair := func(ca *pki.CA) map[string][]byte {
		return map[string][]byte{"tls.crt": ca.CertPEM, "tls.key": ca.KeyPEM}
	}
	c := newCluster(t, 2, func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.TLS.CASecretRef = &v1alpha1.SecretReference{Name: "root"}
	})
	c.waitCondition(stalledTimeout, v1alpha1.ConditionStalled, "True", v1alpha1.ReasonSecretMissing, "spec.tls.caSecretRef")
	c.giveSecret("root", pair(old))
	c.waitReady()
	before := []string{c.podIncarnation(0), c.podIncarnation(1)}
	w := c.startWriter()
	c.giveSecret("root", pair(young))
	eventually(t, tlsTimeout, "the new CA signs, and no member trusts the old one", func(context.Context) error {
		tls := c.readSecret("-tls")
		if !young.HasSigned(tls["tls.crt"]) || string(tls["ca.crt"]) != string(young.CertPEM) {
			return errors.New("not yet")
		}
		return nil
	})
	c.awaitStreaming(1)
	c.waitReady()
	c.awaitCertificate(newClient(t), 2, young, pki.ReadSerial(c.readSecret("-tls")["tls.crt"]))
	c.awaitStreaming(1)
	w.stopWriting()
	for n, was := range before {
		if now := c.podIncarnation(n); now != was {
			t.Errorf("%s, before %s", now, was)
		}
	}
	var own corev1.Secret
	if err := env.client.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: c.name + "-ca"}, &own); !apierrors.IsNotFound(err) {
		t.Errorf("a CA of Holdfast's own: %v", err)
	}
}
