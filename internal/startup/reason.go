package startup

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// ReasonToWait says why an error may end by itself. It is empty for none: the API
// server has answered, or its certificate is not one to trust. What is not known
// is waited for, since ending changes nothing about it either.
func ReasonToWait(err error) string {
	var (
		permanent *Permanent
		untrusted *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		plain     tls.RecordHeaderError
		status    apierrors.APIStatus
	)
	switch {
	case err == nil, meta.IsNoMatchError(err), errors.As(err, &permanent):
		return ""
	case errors.As(err, &untrusted), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &plain):
		return ""
	case !errors.As(err, &status):
		return "cannot be reached"
	}
	switch code := int(status.Status().Code); {
	case code == http.StatusUnauthorized:
		// An API server that starts does not know service accounts yet.
		return "does not accept the operator's credentials"
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == 0, code >= http.StatusInternalServerError:
		return "answers with an error of its own"
	}
	return ""
}

// Permanent is an error that has nothing to do with the API server.
type Permanent struct{ Err error }

func (p *Permanent) Error() string { return p.Err.Error() }
func (p *Permanent) Unwrap() error { return p.Err }
