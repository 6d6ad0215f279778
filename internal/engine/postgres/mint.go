package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
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
)

// mintStep is the next secret to make; nil when all are as they should be.
func mintStep(c *v1alpha1.PostgresCluster, o Observation, now time.Time) *engine.Step {
	if len(o.Minted.Internal[keyAppPassword]) == 0 {
		return &engine.Step{Type: stepMintCredentials, Target: c.Name + suffixInternal, Message: "the cluster has no application password yet"}
	}
	read := o.Minted.certificates(c)
	if r := pki.RotateStep(read.trust, rollout(o, read, now), now); r.Type != pki.RotateNone {
		return &engine.Step{Type: string(r.Type), Target: c.Name + suffixCA, Message: r.Reason}
	}
	if reason, yes := read.stale(now); yes {
		return &engine.Step{Type: stepIssueCert, Target: c.Name + suffixTLS, Message: reason}
	}
	return nil
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

// rollout is how far the members have taken up the certificate.
func rollout(o Observation, read *certificates, now time.Time) pki.Rollout {
	if _, stale := read.stale(now); stale {
		return pki.Rollout{}
	}
	serial := read.leaf.Serial()
	for _, pod := range o.Pods {
		m := o.Members[pod.Name]
		if m.Status == nil || m.Status.PodUID != string(pod.UID) || m.Err != "" || m.Status.CertificateSerial != serial {
			return pki.Rollout{}
		}
	}
	return pki.Rollout{BundleServed: true, LeavesMoved: true}
}

// leaf is what the members' certificate says. All members share one.
func leaf(c *v1alpha1.PostgresCluster) pki.LeafRequest {
	var names []string
	for _, host := range []string{c.Name + suffixRW, c.Name + suffixRO, "*." + c.Name + suffixMembers} {
		names = append(names, host, host+"."+c.Namespace, host+"."+c.Namespace+".svc", host+"."+c.Namespace+".svc.cluster.local")
	}
	return pki.LeafRequest{CommonName: memberapi.MemberName, DNSNames: append(names, "localhost"), Usage: pki.UsageServerAndClient}
}

// mint makes one secret and remembers it; the next pass applies it. What the
// API server already holds wins over anything new: the cache may be behind.
func (e *Engine) mint(ctx context.Context, c *v1alpha1.PostgresCluster, s engine.Step) error {
	var live corev1.Secret
	err := e.Writer.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: s.Target}, &live)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look for %s: %w", s.Target, err)
	}
	known := e.vault.observe(c, nil)
	slot := known.slot(c, s.Target)
	if err == nil && *slot == nil && live.Labels[v1alpha1.LabelCluster] == c.Name && len(live.Data) > 0 {
		e.vault.put(c, s.Target, live.Data)
		return nil
	}
	data, err := e.make(c, s, known)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Type, err)
	}
	e.vault.put(c, s.Target, data)
	return nil
}

func (e *Engine) make(c *v1alpha1.PostgresCluster, s engine.Step, known Minted) (map[string][]byte, error) {
	now := e.Clock.Now()
	state := pki.ParseCAState(known.CA)
	switch s.Type {
	case stepMintCredentials:
		password, err := pki.NewPassword(rand.Reader)
		if err != nil {
			return nil, err
		}
		data := map[string][]byte{}
		for k, v := range known.Internal {
			data[k] = v
		}
		data[keyAppPassword] = []byte(password)
		return data, nil
	case stepIssueCert:
		certPEM, keyPEM, err := pki.Issue(state.Current, leaf(c), now, rand.Reader)
		if err != nil {
			return nil, err
		}
		return map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": state.Bundle()}, nil
	}
	next, err := pki.Rotate(state, pki.RotateType(s.Type), c.Namespace+"/"+c.Name, now, rand.Reader)
	if err != nil {
		return nil, err
	}
	if pki.RotateType(s.Type) == pki.RotateCreate {
		// Members that still serve what a lost CA signed stay trusted until
		// they have moved.
		next.Retired = pki.Bundle(known.TLS["ca.crt"])
	}
	return next.Data(), nil
}
