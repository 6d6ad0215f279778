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
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Secrets is where the member engine learns of Secrets that clusters name.
type Secrets interface {
	// ReadVersions of those of a cluster that are there, by name; it sends nothing.
	ReadVersions(ctx context.Context, cluster types.NamespacedName, names ...string) (map[string]string, error)
	// Read one from the API server.
	Read(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error)
}

// UserCertificates is what was read of the Secrets that spec.tls names; nil for one that
// it does not name. No key is in it.
type UserCertificates struct {
	// Server is the certificate that clients are to see, CA who is to sign the
	// members' own.
	Server, CA *UserSecret
}

// UserSecret is one of them.
type UserSecret struct {
	// Name of the Secret, and the version that was read; none when it is not
	// there.
	Name, ResourceVersion string
	pki.UserProvided

	// seen is the version of its metadata.
	observedVersion string
	// again is when to try once more to read it; zero for not before it changes.
	retryAt time.Time
}

// refusedFor is how long a refusal to read a Secret is taken for an answer: no
// watch tells of rights that were given.
const refusedFor = time.Minute

// NextCheck is the next time at which the Secret is to be judged again although it
// is the same; zero for never.
func (b *UserSecret) NextCheck(now time.Time) time.Time {
	if b.retryAt.After(now) {
		return b.retryAt
	}
	return b.NextChange(now)
}

// FindFault of the Secret now; empty for none. A nil one has none.
func (b *UserSecret) FindFault(now time.Time) string {
	if b == nil || b.ResourceVersion == "" {
		return ""
	}
	return b.UserProvided.FindFault(now)
}

// isUsable says whether there is something that can be used now.
func (b *UserSecret) isUsable(now time.Time) bool {
	return b != nil && b.ResourceVersion != "" && b.FindFault(now) == ""
}

// observeUserSecrets reads what spec.tls names, each Secret once per version.
func (k *MemberEngine) observeUserSecrets(ctx context.Context, s objects.Set) error {
	tls := s.Cluster.Common().TLS
	before := k.secretCache.userCertificates(s)
	if before == (UserCertificates{}) && len(tls.SecretNames()) == 0 {
		return nil
	}
	versions, err := k.Secrets.ReadVersions(ctx, s.Key(), tls.SecretNames()...)
	if err != nil {
		return err
	}
	var now UserCertificates
	now.Server, err = k.readUserSecret(ctx, s, tls.CertificateSecretRef, versions, before.Server, func(data map[string][]byte) pki.UserProvided {
		return pki.ReadServer(data, s.ServerNames())
	})
	if err != nil {
		return err
	}
	now.CA, err = k.readUserSecret(ctx, s, tls.CASecretRef, versions, before.CA, func(data map[string][]byte) pki.UserProvided {
		return pki.ReadAuthority(data, s.Leaf(), rand.Reader)
	})
	if err != nil {
		return err
	}
	k.secretCache.rememberUserCertificates(s, now)
	return nil
}

// readUserSecret a Secret, unless it is the one that was read before.
func (k *MemberEngine) readUserSecret(ctx context.Context, s objects.Set, ref *v1alpha1.SecretReference, versions map[string]string,
	before *UserSecret, parse func(map[string][]byte) pki.UserProvided) (*UserSecret, error) {
	if ref == nil {
		return nil, nil
	}
	b := &UserSecret{Name: ref.Name, observedVersion: versions[ref.Name]}
	now := k.Clock.Now()
	if before != nil && before.Name == b.Name && before.observedVersion == b.observedVersion && (before.retryAt.IsZero() || now.Before(before.retryAt)) {
		return before, nil
	}
	if b.observedVersion == "" {
		return b, nil
	}
	secret, err := k.Secrets.Read(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: ref.Name})
	switch {
	case apierrors.IsNotFound(err):
		return b, nil
	case apierrors.IsForbidden(err):
		b.ResourceVersion, b.UserProvided, b.retryAt = b.observedVersion, pki.RefuseUnreadable("the operator may not read it: see its RBAC"), now.Add(refusedFor)
		return b, nil
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", ref.Name, err)
	}
	b.ResourceVersion, b.UserProvided = secret.ResourceVersion, parse(secret.Data)
	return b, nil
}

// readKeyPair reads the certificate and the key of a Secret that was judged before.
// It is nil when the Secret is another by now: the next pass reads it, whether
// or not the watch has reported it by then.
func (k secretMinter) readKeyPair(ctx context.Context, s objects.Set, b *UserSecret) (map[string][]byte, error) {
	secret, err := k.Secrets.Read(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: b.Name})
	if apierrors.IsNotFound(err) || err == nil && secret.ResourceVersion != b.ResourceVersion {
		k.secretCache.rememberUserCertificates(s, UserCertificates{})
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", b.Name, err)
	}
	return secret.Data, nil
}
