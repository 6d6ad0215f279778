package store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"gocloud.dev/gcerrors"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
)

// Fields of a destination that an error can be in.
const (
	FieldURL         = "url"
	FieldEndpoint    = "endpoint"
	FieldRegion      = "region"
	FieldCredentials = "credentialsSecretRef"
)

// Error says what a store did not do.
type Error struct {
	// Op is what was to be done, such as "write orders/manifest.json".
	Op string
	// Field of the destination to look at; empty where none is to blame.
	Field string
	// Remedy says what to do about it; empty where waiting is all.
	Remedy string
	// Permanent says that another try is in vain until a person repairs it.
	Permanent bool
	// Missing says that the object, or its bucket, is not there.
	Missing bool
	Err     error
}

// Error implements error. What to do goes before what the store said.
func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Op + ": " + e.Remedy + " (" + e.Err.Error() + ")"
}

// Unwrap makes the store's own error known.
func (e *Error) Unwrap() error { return e.Err }

// NotFound says whether an error is that an object is not there.
func NotFound(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Missing
}

// Remedies that several stores share.
const (
	remedyCredentials = "the store does not know these credentials: check the keys of the Secret"
	remedyRights      = "these credentials may not do that: let them list, read, write and delete objects below the URL"
	remedyBucket      = "there is no such bucket or container: create it, or correct its name"
	remedyRegion      = "the bucket is in another region: name it"
	remedyClock       = "the clocks of the node and the store differ: set them"
	remedyFull        = "it has no disk space left: free some, or keep fewer backups"
	remedyDisk        = "free some of the disk, or keep fewer backups there; a larger volume on it gains nothing"
	remedyDown        = "the store does not serve requests: check that it is up; it is asked again by itself"
	remedyNoServer    = "no server answers at this address: check its host and port, that the store is up, and which network policies apply"
	remedyNoStore     = "there is no such bucket, or the server at this address is no store: check both"
	remedyCertificate = "the certificate of the endpoint is not trusted: put its CA into ca.crt of the Secret"
)

// fault is what a code of a store means.
type fault struct{ field, remedy string }

// faults that no other try repairs, by the codes that S3 and Azure give them.
var faults = map[string]fault{
	"InvalidAccessKeyId":           {FieldCredentials, remedyCredentials},
	"SignatureDoesNotMatch":        {FieldCredentials, remedyCredentials},
	"InvalidToken":                 {FieldCredentials, remedyCredentials},
	"ExpiredToken":                 {FieldCredentials, remedyCredentials},
	"AccessDenied":                 {FieldCredentials, remedyRights},
	"NoSuchBucket":                 {FieldURL, remedyBucket},
	"InvalidBucketName":            {FieldURL, remedyBucket},
	"PermanentRedirect":            {FieldRegion, remedyRegion},
	"AuthorizationHeaderMalformed": {FieldRegion, remedyRegion},
	"RequestTimeTooSkewed":         {"", remedyClock},
	"QuotaExceeded":                {FieldURL, remedyFull},
	"XMinioStorageFull":            {FieldURL, remedyFull},
	"AuthenticationFailed":         {FieldCredentials, remedyCredentials},
	"InvalidAuthenticationInfo":    {FieldCredentials, remedyCredentials},
	"AuthorizationFailure":         {FieldCredentials, remedyRights},
	"ContainerNotFound":            {FieldURL, remedyBucket},
	"InvalidResourceName":          {FieldURL, remedyBucket},
}

// passing are codes of answers that look like a mistake of the client, and are
// worth another try.
var passing = map[string]bool{
	"RequestTimeout": true, "IncompleteBody": true, "BadDigest": true, "OperationAborted": true, "SlowDown": true, "TooManyRequests": true,
}

// explainError says what an error of a store means.
func (s *Store) explainError(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Op: op, Err: said{err}}
	answer, code := answerStatus(err)
	known, found := faults[code]
	switch {
	case s.isTransient(err, code):
	case found:
		e.Field, e.Remedy, e.Permanent = known.field, known.remedy, true
		e.Missing = known.remedy == remedyBucket
	case answer == http.StatusInsufficientStorage:
		e.Field, e.Remedy, e.Permanent = FieldURL, remedyFull, true
	case e.explainTransport(err):
	case answer == http.StatusUnauthorized:
		e.Field, e.Remedy, e.Permanent = FieldCredentials, remedyCredentials, true
	case answer == http.StatusForbidden:
		e.Field, e.Remedy, e.Permanent = FieldCredentials, remedyRights, true
	case gcerrors.Code(err) == gcerrors.NotFound:
		e.Missing, e.Permanent = true, true
	case answer == http.StatusTooManyRequests, answer == http.StatusRequestTimeout:
	case answer >= 500:
		e.Field, e.Remedy = s.address, remedyDown
	case answer >= 300 && answer < 500:
		e.Permanent = true
	}
	if e.Field == FieldEndpoint {
		e.Field = s.address
	}
	if e.Remedy == remedyFull {
		return s.explainFull(e)
	}
	return e
}

// isTransient says whether the next try may well succeed.
func (s *Store) isTransient(err error, code string) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || passing[code] ||
		s.ownIdentity && code == "ExpiredToken" // the next try has another one
}

// said is an error without what only its machinery knows: the queries of its
// URLs may hold a signature that lets any client in.
type said struct{ err error }

// queries of URLs, as errors print them.
var queries = regexp.MustCompile(`(https?://[^\s"'?]*)\?[^\s"']*`)

// machinery is what client libraries print around what happened.
var machinery = regexp.MustCompile(`blob (\(key "[^"]*"\) )?\(code=\w+\): |operation error [^:,]+: \w+, |exceeded maximum number of attempts, \d+, |` +
	`https response error StatusCode: \d+, |RequestID: [^,]*, |HostID: [^,]*, |request send failed, |` +
	`dial tcp:? |tls: failed to verify certificate: |x509: `)

// longestAnswer of a store that is repeated, in bytes.
const longestAnswer = 200

// Error implements error.
func (s said) Error() string {
	text := machinery.ReplaceAllString(s.err.Error(), "")
	if status, code := answerStatus(s.err); status > 0 {
		text = fmt.Sprintf("the store answered %d", status)
		if words := answerOf(s.err, code); words != "" {
			text += ", " + words
		}
	}
	return queries.ReplaceAllString(text, "$1")
}

// answerOf is a store's own code and words for an error, in one line.
func answerOf(err error, code string) string {
	words := ""
	var s3 smithy.APIError
	var google *googleapi.Error
	switch {
	case errors.As(err, &s3):
		words = s3.ErrorMessage()
	case errors.As(err, &google):
		words = google.Message
	}
	if code == "UnknownError" { // the library's own
		code = ""
	}
	if words == code || words == "UnknownError" {
		words = ""
	}
	words = strings.Join(strings.Fields(words), " ")
	if len(words) > longestAnswer {
		words = strings.ToValidUTF8(words[:longestAnswer], "") + "…"
	}
	if code != "" && words != "" {
		return code + ": " + words
	}
	return code + words
}

// Is makes the error known for what it is, and nothing more of it.
func (s said) Is(target error) bool { return errors.Is(s.err, target) }

// explainTransport says whether the error is one of the way to the store, or of a directory,
// and what it means.
func (e *Error) explainTransport(err error) bool {
	var name *net.DNSError
	var token *oauth2.RetrieveError
	switch {
	case isUntrusted(err):
		e.Field, e.Remedy, e.Permanent = FieldEndpoint, remedyCertificate, true
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		e.Field, e.Remedy = FieldEndpoint, remedyNoServer
	case errors.As(err, &name) && name.IsNotFound:
		e.Field, e.Remedy = FieldEndpoint, fmt.Sprintf("the host %s is not known: check its name", name.Name)
	case errors.As(err, &token):
		e.Field, e.Remedy, e.Permanent = FieldCredentials, remedyCredentials, true
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Field, e.Remedy, e.Permanent = FieldURL, remedyFull, true
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Field, e.Remedy, e.Permanent = FieldURL, "the directory cannot be written: check its owner and mode", true
	default:
		return false
	}
	return true
}

// answerStatus returns the status of HTTP that a store answered with, and its own code
// for the error; 0 and "" where it did not.
func answerStatus(err error) (status int, code string) {
	var s3 smithy.APIError
	if errors.As(err, &s3) {
		code = s3.ErrorCode()
	}
	var aws *awshttp.ResponseError
	var azure *azcore.ResponseError
	var google *googleapi.Error
	switch {
	case errors.As(err, &aws):
		status = aws.HTTPStatusCode()
	case errors.As(err, &azure):
		status, code = azure.StatusCode, azure.ErrorCode
	case errors.As(err, &google):
		status = google.Code
	}
	return status, code
}

func isUntrusted(err error) bool {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}
