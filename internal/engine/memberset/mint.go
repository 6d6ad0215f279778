package memberset

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Types of the steps that make secrets; those of the CA's life are
// pki.RotateType.
const (
	stepMintCredentials = "MintCredentials"
	stepIssueCert       = "IssueCertificate"
	stepIssueAppCert    = "IssueApplicationCertificate"
)

// Keys in <cluster>-internal of the certificate that applications log in by.
const (
	KeyAppCert = "app.crt"
	KeyAppKey  = "app.key"
)

// MintStep is the next secret to make; nil when all are as they should be.
func (s Set) MintStep(o Observation, now time.Time) *engine.Step {
	if missing := o.Minted.missing(s); len(missing) > 0 {
		return &engine.Step{Type: stepMintCredentials, Target: s.Named(SuffixInternal), Message: "the cluster has no " + missing[0] + " yet"}
	}
	read := o.Minted.certificates(s)
	if r := pki.RotateStep(read.trust, s.rollout(o, read, now), now); r.Type != pki.RotateNone {
		return &engine.Step{Type: string(r.Type), Target: s.Named(SuffixCA), Message: r.Reason}
	}
	if reason, yes := read.stale(now); yes {
		return &engine.Step{Type: stepIssueCert, Target: s.Named(SuffixTLS), Message: reason}
	}
	if reason, yes := read.application.NeedsRenewal(now); yes && s.Application != "" && read.trust.Signs() {
		return &engine.Step{Type: stepIssueAppCert, Target: s.Named(SuffixInternal), Message: reason}
	}
	return nil
}

// missing passwords of the cluster.
func (m Minted) missing(s Set) []string {
	var keys []string
	for _, key := range s.Passwords {
		if len(m.Internal[key]) == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// Complete says whether everything that pods mount was made.
func (m Minted) Complete(s Set) bool {
	application := s.Application == "" || len(m.Internal[KeyAppCert]) > 0 && len(m.Internal[KeyAppKey]) > 0
	return m.CA != nil && m.TLS != nil && len(m.missing(s)) == 0 && application
}

// stale says why the members' certificate must be issued again. It
// is also issued when the bundle beside it changes, so that its serial number
// tells which bundle a member has loaded.
func (r *certificates) stale(now time.Time) (string, bool) {
	if !r.trust.Signs() {
		return "", false
	}
	reason, yes := r.leaf.NeedsRenewal(now)
	if !yes && !r.bundled {
		return "the bundle of trusted CAs changed", true
	}
	return reason, yes
}

// rollout is how far the members have taken up the certificate. Nobody can say
// when applications have taken up theirs: a retired CA that they may log in by
// is trusted until it expires.
func (s Set) rollout(o Observation, read *certificates, now time.Time) pki.Rollout {
	if _, stale := read.stale(now); stale {
		return pki.Rollout{}
	}
	serial := read.leaf.Serial()
	for _, pod := range o.Pods {
		m := o.Members[pod.Name]
		if m.Status == nil || m.Status.PodUID != string(pod.UID) || m.Err != "" || m.Status.CertificateSerial != serial {
			return pki.Rollout{}
		}
		if hash := m.Status.TrustHash; hash != "" && hash != memberapi.HashConfig(read.trust.Bundle) {
			return pki.Rollout{} // its database trusts what it was started with
		}
	}
	return pki.Rollout{BundleServed: true, LeavesMoved: s.Application == ""}
}

// mint makes one secret and remembers it; the next pass applies it. What the
// API server already holds wins over anything new: the cache may be behind.
func (k *Keeper) mint(ctx context.Context, s Set, step engine.Step) error {
	var live corev1.Secret
	err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Cluster.GetNamespace(), Name: step.Target}, &live)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look for %s: %w", step.Target, err)
	}
	known := k.vault.observe(s, nil)
	slot := known.slot(s, step.Target)
	if err == nil && *slot == nil && live.Labels[v1alpha1.LabelCluster] == s.Cluster.GetName() && len(live.Data) > 0 {
		k.vault.put(s, step.Target, live.Data)
		return nil
	}
	data, err := k.make(s, step, known)
	if err != nil {
		return fmt.Errorf("%s: %w", step.Type, err)
	}
	k.vault.put(s, step.Target, data)
	return nil
}

func (k *Keeper) make(s Set, step engine.Step, known Minted) (map[string][]byte, error) {
	now := k.Clock.Now()
	state := pki.ParseCAState(known.CA)
	switch step.Type {
	case stepMintCredentials:
		return passwords(s, known)
	case stepIssueAppCert:
		certPEM, keyPEM, err := pki.Issue(state.Current, s.application(), now, rand.Reader)
		if err != nil {
			return nil, err
		}
		data := map[string][]byte{KeyAppCert: certPEM, KeyAppKey: keyPEM}
		for key, value := range known.Internal {
			if data[key] == nil {
				data[key] = value
			}
		}
		return data, nil
	case stepIssueCert:
		certPEM, keyPEM, err := pki.Issue(state.Current, s.Leaf(), now, rand.Reader)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": state.Bundle()}, nil
	}
	next, err := pki.Rotate(state, pki.RotateType(step.Type), s.Key().String(), now, rand.Reader)
	if err != nil {
		return nil, err
	}
	if pki.RotateType(step.Type) == pki.RotateCreate {
		// Members that still serve what a lost CA signed stay trusted until
		// they have moved.
		next.Retired = pki.Bundle(known.TLS["ca.crt"])
	}
	return next.Data(), nil
}

// passwords are those that are known, and new ones for what is missing.
func passwords(s Set, known Minted) (map[string][]byte, error) {
	data := map[string][]byte{}
	maps.Copy(data, known.Internal)
	for _, key := range known.missing(s) {
		password, err := pki.NewPassword(rand.Reader)
		if err != nil {
			return nil, err
		}
		data[key] = []byte(password)
	}
	return data, nil
}
