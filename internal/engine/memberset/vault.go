package memberset

import (
	"bytes"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/members"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Minted is what was made once and cannot be computed again: the data of three
// Secrets. A nil map means that it does not exist.
type Minted struct {
	CA, TLS, Internal map[string][]byte
	// Brought is what users' Secrets hold, which is read again and not minted.
	Brought Brought

	// read is what the certificates in them say; nil while the vault has not
	// read them.
	read *certificates
}

// vault remembers what was minted, so that a Secret that somebody edits or
// deletes is put back as it was. What changed while no operator ran cannot be
// told from what was minted, and is taken as it is.
type vault struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]*entry
}

type entry struct {
	uid    types.UID
	minted Minted
	// client is the operator's own certificate for the cluster's members, and
	// signer the CA certificate that it was made with.
	client members.ClientTLS
	signer []byte
	renew  time.Time
}

func (v *vault) entry(s Set) *entry {
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

// observe takes up what the cache shows and memory does not have.
func (v *vault) observe(s Set, secrets []corev1.Secret, now time.Time) Minted {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := &v.entry(s).minted
	for i := range secrets {
		slot := m.slot(s, secrets[i].Name)
		switch {
		case slot == nil:
		case *slot == nil && secrets[i].DeletionTimestamp == nil:
			*slot = secrets[i].Data
			m.read = nil
		case *slot != nil && maps.EqualFunc(*slot, secrets[i].Data, bytes.Equal):
			*slot = secrets[i].Data // the same, but the cache holds it anyway
		}
	}
	*m = m.Read(s, now)
	return *m
}

// Read is m with what its certificates say, so that they are read but once.
func (m Minted) Read(s Set, now time.Time) Minted {
	m.read = m.certificates(s, now)
	return m
}

// brought is what was read of users' Secrets last.
func (v *vault) brought(s Set) Brought {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.entry(s).minted.Brought
}

// bring remembers what was read of users' Secrets.
func (v *vault) bring(s Set, b Brought) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.entry(s).minted.Brought = b
}

// slot is where the data of a Secret is remembered; nil for other Secrets.
func (m *Minted) slot(s Set, name string) *map[string][]byte {
	switch name {
	case s.Named(SuffixCA):
		return &m.CA
	case s.Named(SuffixTLS):
		return &m.TLS
	case s.Named(SuffixInternal):
		return &m.Internal
	}
	return nil
}

// put remembers what was just minted.
func (v *vault) put(s Set, name string, data map[string][]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := &v.entry(s).minted
	if slot := m.slot(s, name); slot != nil {
		*slot = data
		m.read = nil
	}
}

// uid of the cluster of a name that is remembered; empty for none.
func (v *vault) uid(name types.NamespacedName) types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e := v.clusters[name]; e != nil {
		return e.uid
	}
	return ""
}

// forget what was minted for a cluster that is gone, keys and passwords too.
func (v *vault) forget(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.clusters, name)
}

// client is the operator's certificate for asking the members, and the CAs
// that it trusts. It lives in memory only. Where the CA that signed the members'
// certificate does not sign for the operator, it asks with the members' own.
func (v *vault) client(s Set, m Minted, now time.Time) (members.ClientTLS, bool) {
	read := m.certificates(s, now)
	v.mu.Lock()
	defer v.mu.Unlock()
	e := v.entry(s)
	e.client.CAPEM = pki.Bundle(read.bundle, m.TLS["ca.crt"])
	if !read.own || !read.trust.Signs() || m.TLS != nil && !read.material.SignedByWanted() {
		e.client.CertPEM, e.client.KeyPEM, e.signer = m.TLS["tls.crt"], m.TLS["tls.key"], nil
		return e.client, m.TLS != nil
	}
	if bytes.Equal(e.signer, m.CA["tls.crt"]) && now.Before(e.renew) {
		return e.client, true
	}
	state := pki.ParseCAState(m.CA) // with its key, for as long as it signs
	certPEM, keyPEM, err := pki.Issue(state.Current, pki.LeafRequest{CommonName: memberapi.OperatorName, Usage: pki.UsageClient}, now, rand.Reader)
	if err != nil {
		return members.ClientTLS{}, false
	}
	e.client.CertPEM, e.client.KeyPEM = certPEM, keyPEM
	e.signer, e.renew = m.CA["tls.crt"], pki.RenewalTime(certPEM)
	return e.client, true
}
