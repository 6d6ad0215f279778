package memberset

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// certificates is what there is to know of minted certificates, without the
// certificates and their keys. To read and verify them in every pass would be
// most of its work.
type certificates struct {
	origin
	// own says that Holdfast's own CA signs, and trust is all that is to be
	// known of it.
	own   bool
	trust pki.Trust
	// bundle is what members are to trust each other by.
	bundle []byte
	// material is what members mount, and hash what they call it.
	material pki.Material
	hash     string
	// clients are the certificates of clients; none where no CA could sign them.
	clients []clientLeaf
}

// clientLeaf is the certificate of a client, and what there is to know of it.
type clientLeaf struct {
	clientCertificate
	pki.Leaf
}

// clientCertificate is one that a kind of client logs in by. It is kept in
// <cluster>-internal.
type clientCertificate struct {
	commonName string
	// step makes it, and the keys are where it is.
	step, certKey, keyKey string
}

// listClientCertificates of a kind of cluster.
func listClientCertificates(s objects.Set) (all []clientCertificate) {
	if s.Application != "" {
		all = append(all, clientCertificate{s.Application, stepIssueAppCert, KeyAppCert, KeyAppKey})
	}
	if s.Copier != "" {
		all = append(all, clientCertificate{s.Copier, stepIssueCopierCert, KeyCopierCert, KeyCopierKey})
	}
	return all
}

// origin is where certificates are to come from.
type origin struct {
	// ca and server are the Secrets and their versions; empty for Holdfast's
	// own.
	ca, server string
	// Of what is to come from a Secret and cannot be used, the last stays.
	caStays, serverStays bool
}

func (m Minted) findOrigin(now time.Time) origin {
	name := func(b *UserSecret) (string, bool) {
		switch {
		case b == nil:
			return "", false
		case b.isUsable(now):
			return b.Name + "/" + b.ResourceVersion, false
		}
		return "", true
	}
	var o origin
	o.ca, o.caStays = name(m.User.CA)
	o.server, o.serverStays = name(m.User.Server)
	return o
}

// readCertificates of a cluster.
func (m Minted) readCertificates(s objects.Set, now time.Time) *certificates {
	from := m.findOrigin(now)
	if m.read != nil && m.read.origin == from {
		return m.read
	}
	state := pki.ParseCAState(m.CA)
	c := &certificates{origin: from, trust: state.ReadTrust(), own: from.ca == "", hash: agentapi.HashTLS(m.TLS)}
	if from.caStays {
		// Holdfast's own CA goes on while it is the one in use.
		c.own = state.Current.HasSigned(m.TLS["tls.crt"])
	}
	want := m.wantMaterial(s, c, state)
	c.bundle, c.material = want.Signer.Trust, pki.ReadMaterial(m.TLS, want)
	for _, client := range listClientCertificates(s) {
		if want.Signer.CertPEM != nil {
			leaf := pki.ReadLeaf(m.Internal[client.certKey], m.Internal[client.keyKey], want.Signer.CertPEM, objects.ClientLeaf(client.commonName))
			c.clients = append(c.clients, clientLeaf{client, leaf})
		}
	}
	return c
}

// findStaleClient finds clients who need another certificate now, and says why; nil for
// none. What comes next for the members tells whether they trust already who is to
// sign it, and a former CA is not dropped before.
func (c *certificates) findStaleClient(next pki.Change, now time.Time) (stale *clientLeaf, why string) {
	if next != (pki.Change{}) && next.Type != pki.MaterialForget {
		return nil, ""
	}
	for i := range c.clients {
		if why, due := c.clients[i].NeedsRenewal(now); due {
			return &c.clients[i], why
		}
	}
	return nil, ""
}

// wantMaterial is what members should mount.
func (m Minted) wantMaterial(s objects.Set, c *certificates, state pki.CAState) pki.Wanted {
	want := pki.Wanted{Leaf: s.Leaf(), Hold: c.serverStays}
	switch {
	case c.own:
		want.Signer.Trust = c.trust.Bundle
		if state.Current != nil {
			want.Signer.CertPEM = state.Current.CertPEM
		}
	case c.ca != "":
		want.Signer = pki.Signer{CertPEM: m.User.CA.CertPEM, Trust: m.User.CA.Roots}
	}
	if c.server != "" {
		want.Server = &m.User.Server.UserProvided
	}
	return want
}

// allUseCertificates says whether every member uses what it mounts as it is now. One that
// has no node mounts nothing yet.
func (o Observation) allUseCertificates(c *certificates) bool {
	for _, pod := range o.Pods {
		if pod.Spec.NodeName != "" && !o.usesCertificates(pod, c) {
			return false
		}
	}
	return true
}

func (o Observation) usesCertificates(pod *corev1.Pod, c *certificates) bool {
	m := o.Members[pod.Name]
	switch {
	case m.Status == nil || m.Status.PodUID != string(pod.UID) || m.Err != "":
		return false
	case m.Status.TrustHash != "" && m.Status.TrustHash != agentapi.HashConfig(o.Minted.TLS["ca.crt"]):
		return false // its database trusts whom it trusted when it started
	case m.Status.TLSHash == "" && o.Minted.User == (UserCertificates{}):
		// An agent that does not say more says which certificate it serves,
		// and that is issued again when the bundle changes.
		return m.Status.CertificateSerial == c.material.MemberLeaf().SerialNumber()
	}
	return m.Status.TLSHash == c.hash
}

// JudgeCertificates says what is wrong with what spec.tls names, and what of it
// is on its way.
func (j *Judgement) JudgeCertificates(now time.Time) {
	waits := "members keep the certificates that they have"
	if j.Observed.Minted.TLS == nil {
		waits = "no member is made"
	}
	for _, b := range []struct {
		field  string
		secret *UserSecret
		stays  string
	}{
		{"spec.tls.certificateSecretRef", j.Observed.Minted.User.Server, "clients see what they saw before"},
		{"spec.tls.caSecretRef", j.Observed.Minted.User.CA, waits},
	} {
		switch fault := b.secret.FindFault(now); {
		case b.secret == nil:
		case b.secret.ResourceVersion == "":
			j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonSecretMissing,
				"%s: there is no Secret %q in this namespace: create it with tls.crt and tls.key, or name another; until then %s", b.field, b.secret.Name, b.stays)
		case fault != "":
			j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonCertificateRefused,
				"%s: Secret %q: %s; until then %s", b.field, b.secret.Name, fault, b.stays)
		}
	}
	c := j.Observed.Minted.readCertificates(j.Set, now)
	j.Observed.Minted.read = c // for the rest of the pass
	next := c.material.NextChange(j.Observed.allUseCertificates(c), now)
	switch {
	case j.Observed.Minted.TLS == nil || c.own && j.Observed.Minted.User == (UserCertificates{}) && !c.material.HasUserProvided():
	case next.Type == pki.MaterialNone && next.Reason != "":
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonConfiguring, "%s", next.Reason)
	case condition.RolledOut(j.Cluster):
		// A renewal within what was asked for.
	case next.Type != pki.MaterialNone:
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonConfiguring, "%s", next.Reason)
	default:
		j.judgeCertificateUse(c)
	}
}

// judgeCertificateUse says which members do not use yet what they mount.
func (j *Judgement) judgeCertificateUse(c *certificates) {
	for n := range j.Desired.Count {
		if m := j.Observed.Member(n); m != nil && !j.Observed.usesCertificates(j.Observed.Pods[n], c) {
			j.AddMemberFact(n, v1alpha1.ConditionReconciling, v1alpha1.ReasonConfiguring, "member %s takes up its certificates, which takes a minute or two", j.PodName(n))
		}
	}
}

// isAgentTooOld says that a member's agent knows nothing of what spec.tls asks for.
func (o Observation) isAgentTooOld(pod *corev1.Pod, m *agentapi.Status) bool {
	return o.Minted.User != (UserCertificates{}) && m != nil && m.TLSHash == "" && o.findAskedAgent(pod) != o.Settings.AgentImage
}

// NextCheck is when a certificate is due, a user-provided certificate expires, a pod may
// be replaced again, why a pod is missing is to be asked, or insights may be recorded: no
// watch reports that.
func (view *View) NextCheck(now time.Time) time.Duration {
	m := view.Observed.Minted
	read := m.readCertificates(view.Set, now)
	times := []time.Time{read.material.RenewalTime()}
	for _, client := range read.clients {
		times = append(times, client.RenewalTime())
	}
	for _, b := range []*UserSecret{m.User.Server, m.User.CA} {
		if b != nil {
			times = append(times, b.NextCheck(now))
		}
	}
	_, insights := view.ReportInsights()
	first := engine.SoonestOf(view.nextReplacement(), view.agentHoldLeft(), insights)
	if len(view.Membership.Missing) > 0 {
		first = engine.SoonestOf(first, uncreatedRecheck)
	}
	for _, at := range times {
		if wait := at.Sub(now); at.After(now) && (first == 0 || wait < first) {
			first = wait
		}
	}
	if due := view.replacementIn(); due > 0 && (first == 0 || due < first) {
		first = due
	}
	return first
}
