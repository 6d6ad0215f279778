package memberset

import (
	"bytes"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Minted is what was made once and cannot be computed again: the data of three
// Secrets. A nil map means that it does not exist.
type Minted struct {
	CA, TLS, Internal map[string][]byte
	// User is what users' Secrets hold, which is read again and not minted.
	User UserCertificates

	// read is what the certificates in them say; nil while the cache has not
	// read them.
	read *certificates
}

// secretCache remembers what was minted, so that a Secret that a client edits or
// deletes is put back as it was. What changed while no operator ran cannot be
// distinguished from what was minted, and is taken as it is.
type secretCache struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]*entry
}

type entry struct {
	uid    types.UID
	minted Minted
	// client is the operator's own certificate for the cluster's members, and
	// signer the CA certificate that it was made with.
	client agentclient.ClientTLS
	signer []byte
	renew  time.Time
}

func (v *secretCache) findEntry(s objects.Set) *entry {
	key := s.Key()
	if v.clusters == nil {
		v.clusters = map[types.NamespacedName]*entry{}
	}
	e := v.clusters[key]
	if e == nil || e.uid != s.Cluster.GetUID() {
		e = &entry{uid: s.Cluster.GetUID()}
		v.clusters[key] = e
	}
	return e
}

// observeSecrets takes up what the cache shows and memory does not have.
func (v *secretCache) observeSecrets(s objects.Set, secrets []corev1.Secret, now time.Time) Minted {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := &v.findEntry(s).minted
	for i := range secrets {
		slot := m.findSlot(s, secrets[i].Name)
		switch {
		case slot == nil:
		case *slot == nil && secrets[i].DeletionTimestamp == nil:
			*slot = secrets[i].Data
			m.read = nil
		case *slot != nil && maps.EqualFunc(*slot, secrets[i].Data, bytes.Equal):
			*slot = secrets[i].Data // the same, but the cache holds it anyway
		}
	}
	*m = m.WithCertificates(s, now)
	return *m
}

// WithCertificates is m with what its certificates say, so that they are read but once.
func (m Minted) WithCertificates(s objects.Set, now time.Time) Minted {
	m.read = m.readCertificates(s, now)
	return m
}

// userCertificates is what was read of users' Secrets last.
func (v *secretCache) userCertificates(s objects.Set) UserCertificates {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.findEntry(s).minted.User
}

// rememberUserCertificates remembers what was read of users' Secrets.
func (v *secretCache) rememberUserCertificates(s objects.Set, b UserCertificates) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.findEntry(s).minted.User = b
}

// findSlot is where the data of a Secret is remembered; nil for other Secrets.
func (m *Minted) findSlot(s objects.Set, name string) *map[string][]byte {
	switch name {
	case s.Named(objects.SuffixCA):
		return &m.CA
	case s.Named(objects.SuffixTLS):
		return &m.TLS
	case s.Named(objects.SuffixInternal):
		return &m.Internal
	}
	return nil
}

// rememberSecret remembers what was just minted.
func (v *secretCache) rememberSecret(s objects.Set, name string, data map[string][]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := &v.findEntry(s).minted
	if slot := m.findSlot(s, name); slot != nil {
		*slot = data
		m.read = nil
	}
}

// clusterUID of the cluster of a name that is remembered; empty for none.
func (v *secretCache) clusterUID(name types.NamespacedName) types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.clusters[name]; e != nil {
		return e.uid
	}
	return ""
}

// forgetCluster what was minted for a cluster that is gone, keys and passwords too.
func (v *secretCache) forgetCluster(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.clusters, name)
}

// clientCredentials is the operator's certificate for asking the members, and the CAs
// that it trusts. It lives in memory only. Where the CA that signed the members'
// certificate does not sign for the operator, it asks with the members' own.
func (v *secretCache) clientCredentials(s objects.Set, m Minted, now time.Time) (agentclient.ClientTLS, bool) {
	read := m.readCertificates(s, now)
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.findEntry(s)
	e.client.CAPEM = pki.JoinBundle(read.bundle, m.TLS["ca.crt"])
	if !read.own || !read.trust.CanSign() || m.TLS != nil && !read.material.SignedByWanted() {
		e.client.CertPEM, e.client.KeyPEM, e.signer = m.TLS["tls.crt"], m.TLS["tls.key"], nil
		return e.client, m.TLS != nil
	}
	if bytes.Equal(e.signer, m.CA["tls.crt"]) && now.Before(e.renew) {
		return e.client, true
	}
	state := pki.ParseCAState(m.CA) // with its key, for as long as it signs
	certPEM, keyPEM, err := pki.IssueLeaf(state.Current, pki.LeafRequest{CommonName: agentapi.OperatorName, Usage: pki.UsageClient}, now, rand.Reader)
	if err != nil {
		return agentclient.ClientTLS{}, false
	}
	e.client.CertPEM, e.client.KeyPEM = certPEM, keyPEM
	e.signer, e.renew = m.CA["tls.crt"], pki.RenewalTime(certPEM)
	return e.client, true
}
