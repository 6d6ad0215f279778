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

// certificate for the cluster, as cert-manager writes it, and its serial
// number.
func (c *cluster) certificate(ca *pki.CA) (map[string][]byte, string) {
	c.t.Helper()
	request := pki.LeafRequest{CommonName: c.name}
	for _, host := range []string{c.name + "-rw", c.name + "-ro", "*." + c.name + "-members"} {
		request.DNSNames = append(request.DNSNames, host+"."+c.namespace+".svc")
	}
	certPEM, keyPEM, err := pki.Issue(ca, request, time.Now(), rand.Reader)
	must(c.t, err, "sign a certificate")
	return map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": ca.CertPEM}, pki.Serial(certPEM)
}

// give puts data into a Secret of the user's.
func (c *cluster) give(name string, data map[string][]byte) {
	c.t.Helper()
	s := &corev1.Secret{Type: corev1.SecretTypeOpaque, Data: data}
	s.Namespace, s.Name = c.namespace, name
	err := env.client.Create(c.t.Context(), s)
	if apierrors.IsAlreadyExists(err) {
		err = env.client.Update(c.t.Context(), s)
	}
	must(c.t, err, "write Secret "+name)
}

// shows waits until every member shows clients the certificate with a serial
// number, and lets them in who trust the CA.
func (c *cluster) shows(app *clientPod, members int, ca *pki.CA, serial string) {
	c.t.Helper()
	app.write(c.t, "/tmp/roots.crt", string(ca.CertPEM))
	secret := c.secret("-app")
	conninfo := func(host string) string {
		return fmt.Sprintf("host=%s.%s.svc port=5432 user=%s password=%s dbname=%s sslrootcert=/tmp/roots.crt sslmode=verify-full",
			host, c.namespace, secret["username"], secret["password"], secret["dbname"])
	}
	for n := range members {
		eventually(c.t, tlsTimeout, c.pod(n)+" shows the certificate "+serial, func(ctx context.Context) error {
			file, err := run(ctx, c.namespace, c.pod(n), "", "cat", "/run/holdfast/tls/server.crt")
			if err != nil {
				return err
			}
			if got := pki.Serial([]byte(file)); got != serial {
				return fmt.Errorf("it has %s", got)
			}
			_, err = app.psql(ctx, conninfo(c.pod(n)+"."+c.name+"-members"), "select 1")
			return err
		})
	}
	for _, suffix := range []string{"-rw", "-ro"} {
		app.mustPsql(c.t, conninfo(c.name+suffix), "select 1")
	}
}

// followed makes every replica connect anew, and waits until it streams.
func (c *cluster) followed(replicas int) {
	c.t.Helper()
	since := strings.TrimSpace(c.sql(0, "select clock_timestamp()"))
	c.sql(0, "select pg_terminate_backend(pid) from pg_stat_replication")
	eventually(c.t, serviceTimeout, "replicas stream", func(ctx context.Context) error {
		got, err := local(ctx, c.namespace, c.pod(0), "app", fmt.Sprintf("select count(*) from pg_stat_replication where state = 'streaming' and backend_start > '%s'", since))
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
	app, before := newClient(t), []string{c.incarnation(0), c.incarnation(1)}
	w := c.startWriter()
	ca, other := userCA(t), userCA(t)
	data, serial := c.certificate(ca)
	c.give("server", data)
	c.edit(func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.TLS.CertificateSecretRef = &v1alpha1.SecretReference{Name: "server"}
	})
	c.waitReady()
	c.shows(app, 2, ca, serial)
	c.followed(1)
	eventually(t, tlsTimeout, "applications get its CA alone", func(context.Context) error {
		if got := c.secret("-app")["ca.crt"]; string(got) != string(ca.CertPEM) {
			return fmt.Errorf("they get\n%s", got)
		}
		return nil
	})

	data, serial = c.certificate(ca)
	c.give("server", data)
	c.shows(app, 2, ca, serial)

	broken := map[string][]byte{"tls.crt": data["tls.crt"], "tls.key": other.KeyPEM, "ca.crt": ca.CertPEM}
	c.give("server", broken)
	c.waitStalled(v1alpha1.ReasonCertificateRefused, "spec.tls.certificateSecretRef", "tls.key does not belong")
	c.shows(app, 2, ca, serial)

	data, serial = c.certificate(other)
	c.give("server", data)
	c.shows(app, 2, other, serial)
	c.followed(1)
	c.waitReady()

	c.edit(func(obj *v1alpha1.PostgresCluster) { obj.Spec.TLS = v1alpha1.TLSSpec{} })
	c.waitReady()
	c.followed(1)
	w.stop()
	for n, was := range before {
		if now := c.incarnation(n); now != was {
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
	c.give("root", pair(old))
	c.waitReady()
	before := []string{c.incarnation(0), c.incarnation(1)}
	w := c.startWriter()
	c.give("root", pair(young))
	eventually(t, tlsTimeout, "the new CA signs, and nobody trusts the old one", func(context.Context) error {
		tls := c.secret("-tls")
		if !young.Signed(tls["tls.crt"]) || string(tls["ca.crt"]) != string(young.CertPEM) {
			return errors.New("not yet")
		}
		return nil
	})
	c.followed(1)
	c.waitReady()
	c.shows(newClient(t), 2, young, pki.Serial(c.secret("-tls")["tls.crt"]))
	c.followed(1)
	w.stop()
	for n, was := range before {
		if now := c.incarnation(n); now != was {
			t.Errorf("%s, before %s", now, was)
		}
	}
	var own corev1.Secret
	if err := env.client.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: c.name + "-ca"}, &own); !apierrors.IsNotFound(err) {
		t.Errorf("a CA of Holdfast's own: %v", err)
	}
}
