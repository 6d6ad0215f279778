package memberset

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// stepMintCredentials makes passwords. The steps of the CA's life are
// pki.RotateType, those of certificates pki.MaterialStep.
const stepMintCredentials = "MintCredentials"

// stepIssueAppCert makes the certificate that applications log in by, and
// stepIssueCopierCert that of Jobs that copy a member, in <cluster>-internal under
// these keys.
const (
	stepIssueAppCert    = "IssueApplicationCertificate"
	KeyAppCert          = "app.crt"
	KeyAppKey           = "app.key"
	stepIssueCopierCert = "IssueCopierCertificate"
	KeyCopierCert       = "copier.crt"
	KeyCopierKey        = "copier.key"
)

// mintStep is the next secret to make; nil when all are as they should be.
func mintStep(s objects.Set, o Observation, now time.Time) *engine.Step {
	if missing := o.Minted.missingPasswords(s); len(missing) > 0 {
		return &engine.Step{Type: stepMintCredentials, Target: s.Named(objects.SuffixInternal), Message: "the cluster has no " + missing[0] + " yet"}
	}
	read := o.Minted.readCertificates(s, now)
	loaded := o.allUseCertificates(read)
	if read.own {
		done := loaded && read.material.IsSettled(now)
		// No agent can say when applications have taken up theirs: a retired CA
		// that they may log in by is trusted until it expires. A Job takes up
		// what there is when it starts.
		stale, _ := read.findStaleClient(pki.Change{}, now)
		moved := done && s.Application == "" && stale == nil
		if r := pki.RotateStep(read.trust, pki.Rollout{BundleServed: done, LeavesMoved: moved}, now); r.Type != pki.RotateNone {
			return &engine.Step{Type: string(r.Type), Target: s.Named(objects.SuffixCA), Message: r.Reason}
		}
	}
	next := read.material.NextChange(loaded, now)
	if stale, why := read.findStaleClient(next, now); stale != nil {
		return &engine.Step{Type: stale.step, Target: s.Named(objects.SuffixInternal), Message: why}
	}
	if next.Type != pki.MaterialNone {
		return &engine.Step{Type: string(next.Type), Target: s.Named(objects.SuffixTLS), Message: next.Reason}
	}
	return nil
}

// missingPasswords passwords of the cluster.
func (m Minted) missingPasswords(s objects.Set) []string {
	var keys []string
	for _, key := range s.Passwords {
		if len(m.Internal[key]) == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// IsComplete says whether everything that pods mount was made.
func (m Minted) IsComplete(s objects.Set) bool {
	application := s.Application == "" || len(m.Internal[KeyAppCert]) > 0 && len(m.Internal[KeyAppKey]) > 0
	return (m.CA != nil || m.User.CA != nil) && m.TLS != nil && len(m.missingPasswords(s)) == 0 && application
}

// secretMinter makes the Secrets of a cluster, for its member engine.
type secretMinter struct{ *MemberEngine }

// mintSecret makes one secret and remembers it; the next pass applies it. What the
// API server already holds wins over anything new: the cache may be behind.
func (k secretMinter) mintSecret(ctx context.Context, s objects.Set, step engine.Step) error {
	var live corev1.Secret
	err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Cluster.GetNamespace(), Name: step.Target}, &live)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look for %s: %w", step.Target, err)
	}
	known := k.secretCache.observeSecrets(s, nil, k.Clock.Now())
	slot := known.findSlot(s, step.Target)
	if err == nil && *slot == nil && ownsSecret(s, &live) && len(live.Data) > 0 {
		k.secretCache.rememberSecret(s, step.Target, live.Data)
		return nil
	}
	data, err := k.makeSecretData(ctx, s, step, known)
	if err != nil {
		return fmt.Errorf("%s: %w", step.Type, err)
	}
	if data == nil {
		return nil // what it was planned from has changed: the next pass looks again
	}
	k.secretCache.rememberSecret(s, step.Target, data)
	return nil
}

// ownsSecret says whether a Secret was minted for the cluster, or for one of its kind
// and name that left it behind, as apply has it.
func ownsSecret(s objects.Set, secret *corev1.Secret) bool {
	if controller := metav1.GetControllerOf(secret); controller != nil {
		return controller.UID == s.Cluster.GetUID()
	}
	labels := s.Labels("")
	delete(labels, "app.kubernetes.io/component")
	if apply.LostLabels(secret, labels) {
		return true // apply puts them back
	}
	kind, hasKind := secret.Labels[v1alpha1.LabelKind]
	return secret.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy &&
		secret.Labels[v1alpha1.LabelCluster] == s.Cluster.GetName() &&
		(!hasKind || kind == s.Selector()[v1alpha1.LabelKind])
}

func (k secretMinter) makeSecretData(ctx context.Context, s objects.Set, step engine.Step, known Minted) (map[string][]byte, error) {
	now := k.Clock.Now()
	switch {
	case step.Type == stepMintCredentials:
		return completePasswords(s, known)
	case step.Target == s.Named(objects.SuffixInternal):
		return k.issueClientCertificate(ctx, s, step.Type, known)
	case step.Target == s.Named(objects.SuffixTLS):
		return k.changeMaterial(ctx, s, pki.MaterialStep(step.Type), known)
	}
	next, err := pki.RotateCA(pki.ParseCAState(known.CA), pki.RotateType(step.Type), s.Key().String(), now, rand.Reader)
	if err != nil {
		return nil, err
	}
	if pki.RotateType(step.Type) == pki.RotateCreate {
		// Members that still serve what a lost CA signed stay trusted until
		// they have moved.
		next.Retired = pki.JoinBundle(known.TLS["ca.crt"])
	}
	return next.SecretData(), nil
}

// changeMaterial changes what members mount; nil when the user-provided one is another by now.
func (k secretMinter) changeMaterial(ctx context.Context, s objects.Set, step pki.MaterialStep, known Minted) (map[string][]byte, error) {
	now := k.Clock.Now()
	state, read := pki.ParseCAState(known.CA), known.readCertificates(s, now)
	want := known.wantMaterial(s, read, state)
	switch step {
	case pki.MaterialTrust:
		return pki.WithTrust(known.TLS, want.Signer.Trust), nil
	case pki.MaterialIssue, pki.MaterialForget:
		ca, err := k.findSigner(ctx, s, read, known, state)
		if ca == nil || err != nil {
			return nil, err
		}
		certPEM, keyPEM, err := pki.IssueLeaf(ca, want.Leaf, now, rand.Reader)
		if err != nil {
			return nil, err
		}
		if step == pki.MaterialForget {
			return pki.WithLeaf(known.TLS, certPEM, keyPEM, want.Signer.Trust), nil
		}
		issued := pki.WithLeaf(known.TLS, certPEM, keyPEM, want.Signer.Trust, known.TLS["ca.crt"])
		if known.TLS != nil || want.Server == nil {
			return issued, nil
		}
		// The first members serve it from their first moment.
		return k.serveCertificate(ctx, s, pki.WithServerTrustOnly(issued, want.Server.Roots), known, want)
	case pki.MaterialServe:
		return k.serveCertificate(ctx, s, known.TLS, known, want)
	}
	roots := known.TLS["ca.crt"]
	if want.Server != nil {
		roots = want.Server.Roots
	}
	switch {
	case step == pki.MaterialTrustServer:
		return pki.WithServerTrust(known.TLS, roots), nil
	case step == pki.MaterialForgetServer && want.Server != nil:
		return pki.WithServerTrustOnly(known.TLS, roots), nil
	case step == pki.MaterialForgetServer:
		return pki.WithServerTrustOnly(known.TLS, nil), nil
	}
	return nil, fmt.Errorf("unknown step %q", step)
}

// issueClientCertificate is <cluster>-internal with a new certificate for clients; nil
// when the Secret of the CA is another by now.
func (k secretMinter) issueClientCertificate(ctx context.Context, s objects.Set, step string, known Minted) (map[string][]byte, error) {
	all := listClientCertificates(s)
	i := slices.IndexFunc(all, func(c clientCertificate) bool { return c.step == step })
	if i < 0 {
		return nil, fmt.Errorf("unknown step %q", step)
	}
	now := k.Clock.Now()
	ca, err := k.findSigner(ctx, s, known.readCertificates(s, now), known, pki.ParseCAState(known.CA))
	if ca == nil || err != nil {
		return nil, err
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, objects.ClientLeaf(all[i].commonName), now, rand.Reader)
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	maps.Copy(data, known.Internal)
	data[all[i].certKey], data[all[i].keyKey] = certPEM, keyPEM
	return data, nil
}

// findSigner of the members' certificate; nil when the Secret that it is in is
// another by now.
func (k secretMinter) findSigner(ctx context.Context, s objects.Set, read *certificates, known Minted, state pki.CAState) (*pki.CA, error) {
	if read.own {
		return state.Current, nil
	}
	data, err := k.readKeyPair(ctx, s, known.User.CA)
	if data == nil || err != nil {
		return nil, err
	}
	return pki.ParseCA(data["tls.crt"], data["tls.key"])
}

// serveCertificate shows clients what is wanted; nil when the Secret that it is in is
// another by now.
func (k secretMinter) serveCertificate(ctx context.Context, s objects.Set, data map[string][]byte, known Minted, want pki.Wanted) (map[string][]byte, error) {
	if want.Server == nil {
		return pki.WithServerCertificate(data, nil, nil), nil
	}
	pair, err := k.readKeyPair(ctx, s, known.User.Server)
	if pair == nil || err != nil {
		return nil, err
	}
	return pki.WithServerCertificate(data, want.Server.CertPEM, pair["tls.key"]), nil
}

// completePasswords are those that are known, and new ones for what is missing.
func completePasswords(s objects.Set, known Minted) (map[string][]byte, error) {
	data := map[string][]byte{}
	maps.Copy(data, known.Internal)
	for _, key := range known.missingPasswords(s) {
		password, err := pki.NewPassword(rand.Reader)
		if err != nil {
			return nil, err
		}
		data[key] = []byte(password)
	}
	return data, nil
}

// secretData is what the cluster's objects are made from.
func (m Minted) secretData(s objects.Set) objects.SecretData {
	return objects.SecretData{CA: m.CA, TLS: m.TLS, Internal: m.Internal, Complete: m.IsComplete(s)}
}
