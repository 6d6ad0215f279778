package pki

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"slices"
	"time"
)

// Keys of the Secret that holds a cluster's CA.
const (
	keyCurrentCert = "tls.crt"
	keyCurrentKey  = "tls.key"
	keyNextCert    = "next.crt"
	keyNextKey     = "next.key"
	keyBundle      = "ca.crt"
)

// CAState is everything that is known of a cluster's CAs. A CA changes bundle
// first, leaves later: the next CA is trusted everywhere before it signs
// anything, and the old one is trusted until nothing signed by it is in use.
type CAState struct {
	// Current signs leaves; nil when it was never made, is lost or unreadable.
	Current *CA
	// Next is trusted and does not sign yet; nil outside a rotation.
	Next *CA
	// Retired are certificates in PEM form that are trusted and never sign
	// again; empty outside a rotation.
	Retired []byte
}

// ParseCAState reads what SecretData wrote. It never fails: a CA that is unreadable
// is nil, and as much of it as can still be trusted is in Retired.
func ParseCAState(data map[string][]byte) CAState {
	var s CAState
	if ca, err := ParseCA(data[keyCurrentCert], data[keyCurrentKey]); err == nil {
		s.Current = ca
	}
	if ca, err := ParseCA(data[keyNextCert], data[keyNextKey]); err == nil {
		s.Next = ca
	}
	for _, der := range certBlocks(data[keyBundle], data[keyCurrentCert], data[keyNextCert]) {
		if s.Current.hasCertificate(der) || s.Next.hasCertificate(der) {
			continue
		}
		if cert, err := x509.ParseCertificate(der); err == nil && cert.IsCA {
			s.Retired = JoinBundle(s.Retired, encodePEM(pemCertificate, der))
		}
	}
	return s
}

// SecretData is the content of the Secret that holds the CAs: tls.crt and tls.key of
// the current one, next.crt and next.key during a rotation, and in ca.crt
// everything that is to be trusted.
func (s CAState) SecretData() map[string][]byte {
	data := map[string][]byte{keyBundle: s.TrustedBundle()}
	if s.Current != nil {
		data[keyCurrentCert], data[keyCurrentKey] = s.Current.CertPEM, s.Current.KeyPEM
	}
	if s.Next != nil {
		data[keyNextCert], data[keyNextKey] = s.Next.CertPEM, s.Next.KeyPEM
	}
	return data
}

// TrustedBundle is what all members and clients must trust in this state, in PEM form.
func (s CAState) TrustedBundle() []byte {
	var certs [][]byte
	for _, ca := range []*CA{s.Current, s.Next} {
		if ca != nil {
			certs = append(certs, ca.CertPEM)
		}
	}
	return JoinBundle(append(certs, s.Retired)...)
}

// Trust is what there is to know of a CAState without its certificates and
// keys: it is small and holds no secret.
type Trust struct {
	// Bundle is what all members and clients must trust, in PEM form.
	Bundle []byte

	current, next *validity
	retired       []validity
}

// ReadTrust reads once what then answers every question but signing.
func (s CAState) ReadTrust() Trust {
	t := Trust{Bundle: s.TrustedBundle(), current: s.Current.certificateValidity(), next: s.Next.certificateValidity()}
	for _, der := range certBlocks(s.Retired) {
		if cert, err := x509.ParseCertificate(der); err == nil {
			t.retired = append(t.retired, validityOf(cert))
		}
	}
	return t
}

// CanSign says whether there is a CA that can sign.
func (t Trust) CanSign() bool { return t.current != nil }

func (ca *CA) certificateValidity() *validity {
	if ca == nil {
		return nil
	}
	return new(validityOf(ca.cert))
}

// RotateType is one step of a CA's life.
type RotateType string

// The steps, in their order.
const (
	// RotateNone: nothing to do, or something to wait for.
	RotateNone RotateType = ""
	// RotateCreate makes the first CA; it signs at once.
	RotateCreate RotateType = "CreateCA"
	// RotateAddNext makes the next CA and trusts it.
	RotateAddNext RotateType = "AddNextCA"
	// RotatePromote lets the next CA sign and retires the current one.
	RotatePromote RotateType = "PromoteCA"
	// RotateDropRetired stops trusting the retired.
	RotateDropRetired RotateType = "DropRetiredCA"
)

// Rotation is the next step, and why.
type Rotation struct {
	Type   RotateType
	Reason string
}

// Rollout is how far members have taken up what was issued.
type Rollout struct {
	// BundleServed: every member trusts all of CAState.TrustedBundle.
	BundleServed bool
	// LeavesMoved: every leaf in use is signed by CAState.Current.
	LeavesMoved bool
}

// RotateStep is what to do next about the cluster's CAs, at most one step.
func RotateStep(t Trust, rollout Rollout, now time.Time) Rotation { //nolint:gocyclo // an ordered switch: first match wins
	switch {
	case t.current == nil && t.next == nil && !t.retiredValid(now):
		return Rotation{RotateCreate, "the cluster has no CA"}
	case t.next != nil && t.next.isExpired(now):
		return Rotation{RotateAddNext, "the next CA expired before it was used"}
	case t.next != nil && rollout.BundleServed:
		return Rotation{RotatePromote, "every member trusts the next CA"}
	case t.next != nil && !t.canVerify(now):
		// No member could be asked whether the bundle is served: connections
		// fail already, and waiting would keep it so.
		return Rotation{RotatePromote, "the current CA has expired"}
	case t.next != nil:
		return Rotation{}
	case t.current == nil:
		return Rotation{RotateAddNext, "the current CA is unreadable"}
	case t.current.pastTwoThirds(now):
		return Rotation{RotateAddNext, "two thirds of the current CA's life are over"}
	case len(t.retired) > 0 && rollout.LeavesMoved:
		return Rotation{RotateDropRetired, "every leaf is signed by the current CA"}
	case len(t.retired) > 0 && !t.retiredValid(now):
		return Rotation{RotateDropRetired, "the retired CAs have expired"}
	}
	return Rotation{}
}

// RotateCA does a step. The name is that of a CA that the step makes.
func RotateCA(s CAState, step RotateType, name string, now time.Time, rand io.Reader) (CAState, error) {
	switch step {
	case RotateCreate, RotateAddNext:
		ca, err := NewCA(name, now, rand)
		if err != nil {
			return s, err
		}
		if step == RotateCreate {
			return CAState{Current: ca}, nil
		}
		s.Next = ca
		return s, nil
	case RotatePromote:
		if s.Next == nil {
			return s, fmt.Errorf("%s: there is no next CA", step)
		}
		if s.Current != nil {
			s.Retired = JoinBundle(s.Current.CertPEM, s.Retired)
		}
		s.Current, s.Next = s.Next, nil
		return s, nil
	case RotateDropRetired:
		s.Retired = nil
		return s, nil
	case RotateNone:
		return s, nil
	}
	return s, fmt.Errorf("unknown step %q", step)
}

// canVerify says whether leaves of the past can still be verified.
func (t Trust) canVerify(now time.Time) bool {
	return t.current != nil && !t.current.isExpired(now) || t.retiredValid(now)
}

func (t Trust) retiredValid(now time.Time) bool {
	return slices.ContainsFunc(t.retired, func(v validity) bool { return !v.isExpired(now) })
}

func (ca *CA) hasCertificate(der []byte) bool { return ca != nil && bytes.Equal(ca.cert.Raw, der) }
