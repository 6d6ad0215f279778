//go:build e2e && soak

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// connectionFollower has a client follow the connection Secret, as an application that
// reads it again when it changes.
type connectionFollower struct {
	f       *trial
	version string
}

func (r *connectionFollower) follow(ctx context.Context) (map[string][]byte, error) {
	var secret corev1.Secret
	if err := env.client.Get(ctx, r.f.c.nameOf("-app"), &secret); err != nil {
		return nil, err
	}
	if r.version != secret.ResourceVersion {
		r.f.w.connectBy(openMySQLRows(r.f.c.t, secret.Data, r.f.serviceAddress()))
		r.version = secret.ResourceVersion
	}
	return secret.Data, nil
}

// checkNoneRefused: since a time, no new connection was refused, and no write failed.
func (f *trial) checkNoneRefused(since time.Duration) {
	f.c.t.Helper()
	f.w.goesOn(f.c.t)
	connected, refused := f.history.CountAttempts(since)
	acknowledged, failed := f.w.countWrites(since)
	f.c.t.Logf("%d logins, %d refused; %d writes, %d failed", connected, refused, acknowledged, failed)
	if refused > 0 || failed > 0 || connected == 0 {
		f.c.t.Errorf("of %d logins %d were refused, and %d writes failed; the last error is %v", connected+refused, refused, failed, f.w.readError())
	}
}

// mysqlCAReplaced: a user's CA signs from the first certificate on, and is replaced while
// applications log in that read the connection Secret again. No login fails, no member
// restarts, and a member that joins later trusts the new one.
func mysqlCAReplaced(t *testing.T) {
	needLocalCluster(t)
	old, young := userCA(t), userCA(t)
	pair := func(ca *pki.CA) map[string][]byte {
		return map[string][]byte{"tls.crt": ca.CertPEM, "tls.key": ca.KeyPEM}
	}
	c := createUnwatched(t, mysql, failoverMembers, "tls: {caSecretRef: {name: root}}")
	c.waitCondition(stalledTimeout, v1alpha1.ConditionStalled, "True", v1alpha1.ReasonSecretMissing, "spec.tls.caSecretRef")
	c.giveSecret("root", pair(old))
	f := newTrial(c, mysqlFailovers{})
	members, since, app := c.allIncarnations(), f.history.Now(), &connectionFollower{f: f}
	c.giveSecret("root", pair(young))
	eventually(t, tlsTimeout, "the new CA signs, and no member trusts the old one", func(ctx context.Context) error {
		connection, err := app.follow(ctx)
		material := c.readSecret("-tls")
		if err == nil && (!young.HasSigned(material["tls.crt"]) || string(material["ca.crt"]) != string(young.CertPEM) || string(connection["ca.crt"]) != string(young.CertPEM)) {
			err = errors.New("not yet")
		}
		return err
	})
	time.Sleep(settlePeriod) // the observation itself: clients go on
	f.checkNoneRefused(since)
	f.endEvent("CA replaced", since, true)
	if now := c.allIncarnations(); now != members {
		t.Errorf("members were touched: %s\nbefore\n%s", now, members)
	}
	podDeleted(f)
}

// mysqlPasswordReplaced: the application's password is replaced while no operator runs,
// which would put it back. The members take it, and the one before stays valid until
// applications have read the connection Secret again. No login fails.
func mysqlPasswordReplaced(f *trial) {
	since, app := f.history.Now(), &connectionFollower{f: f}
	installed.restoreReplicas(f.c.t)
	replicas := installedReplicas(f.c.t)
	installed.scaleTo(f.c.t, 0)
	password := "e2e-" + rand.Text()
	var internal corev1.Secret
	f.c.readObject(&internal, f.c.name+"-internal")
	before := client.MergeFrom(internal.DeepCopy())
	if len(internal.Data["app-password"]) == 0 {
		f.c.t.Fatal("the Secret has no app-password")
	}
	internal.Data["app-password"] = []byte(password)
	must(f.c.t, env.client.Patch(f.c.t.Context(), &internal, before, client.FieldOwner("e2e")), "replace the password")
	connection := maps.Clone(f.c.readSecret("-app"))
	connection["password"] = []byte(password)
	open := openMySQLRows(f.c.t, connection, f.serviceAddress())
	eventually(f.c.t, tlsTimeout, "the members take the new password", func(ctx context.Context) error {
		session, err := connectFrom(ctx, open, f.w.from)
		if err == nil {
			session.close(ctx)
		}
		return err
	})
	f.checkNoneRefused(since)
	installed.scaleTo(f.c.t, replicas)
	eventually(f.c.t, serviceTimeout, "the connection Secret has the new password", func(ctx context.Context) error {
		connection, err := app.follow(ctx)
		if err == nil && string(connection["password"]) != password {
			err = errors.New("it has the one before")
		}
		return err
	})
	time.Sleep(settlePeriod) // the observation itself: clients go on
	f.checkNoneRefused(since)
	f.endEvent("password replaced", since, true)
}
