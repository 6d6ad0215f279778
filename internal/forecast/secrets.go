package forecast

import (
	"crypto/rand"
	"time"

	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Mint makes the certificates and passwords of a cluster, as the operator's steps do. They
// are of use in a world only.
func Mint(s objects.Set, now time.Time) (memberset.Minted, error) {
	ca, err := pki.NewCA("forecast", now, rand.Reader)
	if err != nil {
		return memberset.Minted{}, err
	}
	state := pki.CAState{Current: ca}
	m := memberset.Minted{CA: state.SecretData(), TLS: map[string][]byte{"ca.crt": state.TrustedBundle()}, Internal: map[string][]byte{}}
	for _, key := range s.Passwords {
		m.Internal[key] = []byte("of a forecast")
	}
	for _, leaf := range []struct {
		request   pki.LeafRequest
		into      map[string][]byte
		cert, key string
		wanted    bool
	}{
		{s.Leaf(), m.TLS, "tls.crt", "tls.key", true},
		{objects.ClientLeaf(s.Application), m.Internal, memberset.KeyAppCert, memberset.KeyAppKey, s.Application != ""},
		{objects.ClientLeaf(s.Copier), m.Internal, memberset.KeyCopierCert, memberset.KeyCopierKey, s.Copier != ""},
	} {
		if !leaf.wanted {
			continue
		}
		if leaf.into[leaf.cert], leaf.into[leaf.key], err = pki.IssueLeaf(ca, leaf.request, now, rand.Reader); err != nil {
			return memberset.Minted{}, err
		}
	}
	return m.WithCertificates(s, now), nil
}
