package memberset

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Secrets is where the keeper learns of Secrets that clusters name.
type Secrets interface {
	// Versions of those of a cluster that are there, by name; it sends nothing.
	Versions(ctx context.Context, cluster types.NamespacedName, names ...string) (map[string]string, error)
	// Read one from the API server.
	Read(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error)
}

// Brought is what was read of the Secrets that spec.tls names; nil for one that
// it does not name. No key is in it.
type Brought struct {
	// Server is the certificate that clients are to see, CA who is to sign the
	// members' own.
	Server, CA *BroughtSecret
}

// BroughtSecret is one of them.
type BroughtSecret struct {
	// Name of the Secret, and the version that was read; none when it is not
	// there.
	Name, ResourceVersion string
	pki.Given

	// seen is the version of its metadata.
	seen string
	// again is when to try once more to read it; zero for not before it changes.
	again time.Time
}

// refusedFor is how long a refusal to read a Secret is taken for an answer: no
// watch tells of rights that were given.
const refusedFor = time.Minute

// Next is the next time at which the Secret is to be judged again although it
// is the same; zero for never.
func (b *BroughtSecret) Next(now time.Time) time.Time {
	if b.again.After(now) {
		return b.again
	}
	return b.Given.Next(now)
}

// Fault of the Secret now; empty for none. A nil one has none.
func (b *BroughtSecret) Fault(now time.Time) string {
	if b == nil || b.ResourceVersion == "" {
		return ""
	}
	return b.Given.Fault(now)
}

// usable says whether there is something that can be used now.
func (b *BroughtSecret) usable(now time.Time) bool {
	return b != nil && b.ResourceVersion != "" && b.Given.Fault(now) == ""
}

// ServerNames are what a certificate for clients must carry: the names that
// the connection Secret and the status give out, and those by which members
// find each other.
func (s Set) ServerNames() []string {
	var names []string
	for _, suffix := range s.Clients {
		names = append(names, s.Host(suffix))
	}
	return append(names, "*."+s.Host(SuffixMembers))
}

// bring reads what spec.tls names, each Secret once per version.
func (k *Keeper) bring(ctx context.Context, s Set) error {
	tls := s.Cluster.Common().TLS
	before := k.vault.brought(s)
	if before == (Brought{}) && len(tls.SecretNames()) == 0 {
		return nil
	}
	versions, err := k.Secrets.Versions(ctx, s.Key(), tls.SecretNames()...)
	if err != nil {
		return err
	}
	var now Brought
	now.Server, err = k.read(ctx, s, tls.CertificateSecretRef, versions, before.Server, func(data map[string][]byte) pki.Given {
		return pki.ReadServer(data, s.ServerNames())
	})
	if err != nil {
		return err
	}
	now.CA, err = k.read(ctx, s, tls.CASecretRef, versions, before.CA, func(data map[string][]byte) pki.Given {
		return pki.ReadAuthority(data, s.Leaf(), rand.Reader)
	})
	if err != nil {
		return err
	}
	k.vault.bring(s, now)
	return nil
}

// read a Secret, unless it is the one that was read before.
func (k *Keeper) read(ctx context.Context, s Set, ref *v1alpha1.SecretReference, versions map[string]string,
	before *BroughtSecret, parse func(map[string][]byte) pki.Given) (*BroughtSecret, error) {
	if ref == nil {
		return nil, nil
	}
	b := &BroughtSecret{Name: ref.Name, seen: versions[ref.Name]}
	now := k.Clock.Now()
	if before != nil && before.Name == b.Name && before.seen == b.seen && (before.again.IsZero() || now.Before(before.again)) {
		return before, nil
	}
	if b.seen == "" {
		return b, nil
	}
	secret, err := k.Secrets.Read(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: ref.Name})
	switch {
	case apierrors.IsNotFound(err):
		return b, nil
	case apierrors.IsForbidden(err):
		b.ResourceVersion, b.Given, b.again = b.seen, pki.Refused("the operator may not read it: see its RBAC"), now.Add(refusedFor)
		return b, nil
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", ref.Name, err)
	}
	b.ResourceVersion, b.Given = secret.ResourceVersion, parse(secret.Data)
	return b, nil
}

// pair reads the certificate and the key of a Secret that was judged before.
// It is nil when the Secret is another by now: the next pass reads it, whether
// or not the watch has told of it by then.
func (k *Keeper) pair(ctx context.Context, s Set, b *BroughtSecret) (map[string][]byte, error) {
	secret, err := k.Secrets.Read(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: b.Name})
	if apierrors.IsNotFound(err) || err == nil && secret.ResourceVersion != b.ResourceVersion {
		k.vault.bring(s, Brought{})
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", b.Name, err)
	}
	return secret.Data, nil
}
