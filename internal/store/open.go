package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2/google"
)

// Open makes a store ready. It asks nothing of it: see CheckAccess.
func Open(ctx context.Context, at Location, secret Secret) (*Store, error) {
	u, err := parseLocation(at)
	if err != nil {
		return nil, err
	}
	certified()
	roots, err := readRoots(secret)
	if err != nil {
		return nil, err
	}
	s := &Store{Patience: patience, name: at.URL, address: FieldURL, ownIdentity: len(secret[KeyS3ID]) == 0}
	if at.Endpoint != "" {
		s.address = FieldEndpoint
	}
	prefix := strings.Trim(u.Path, "/")
	switch u.Scheme {
	case "s3":
		s.bucket, err = openS3(ctx, at, u.Host, secret, roots)
	case "gs":
		s.bucket, err = openGoogle(ctx, u.Host, secret, roots)
	case "azblob":
		s.bucket, err = openAzure(ctx, at, u.Host, secret, roots)
	case "file":
		s.bucket, err = openDirectory(u.Path)
		s.keep = func(key string) error { return syncFile(u.Path, key) }
		s.clear = func(prefix string) error { return clearDirectory(u.Path, prefix) }
		prefix = ""
		if at.Volume != "" {
			s.name, s.volume = "the volume "+at.Volume, true
		}
		if at.Size > 0 {
			s.space = &space{dir: u.Path, size: at.Size, disk: diskOf}
		}
	}
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		s.bucket = blob.PrefixedBucket(s.bucket, prefix+"/")
	}
	return s, nil
}

// fieldError is an error in a field.
func fieldError(field, format string, args ...any) error {
	return &Error{Op: "open the store", Field: field, Permanent: true, Err: fmt.Errorf(format, args...)}
}

func parseLocation(at Location) (*url.URL, error) {
	u, err := url.Parse(at.URL)
	switch {
	case err != nil:
		return nil, fieldError(FieldURL, "%w", err)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return nil, fieldError(FieldURL, "%q has more than a bucket and a prefix: options are fields of their own, and keys belong into a Secret", at.URL)
	case u.Scheme == "file" && (u.Host != "" || !strings.HasPrefix(u.Path, "/")):
		return nil, fieldError(FieldURL, "%q is no directory: write three slashes, such as file:///backups", at.URL)
	case u.Scheme == "file":
		return u, nil
	case u.Scheme != "s3" && u.Scheme != "gs" && u.Scheme != "azblob":
		return nil, fieldError(FieldURL, "%q is no store that is known: write s3://bucket/prefix, gs://bucket/prefix or azblob://container/prefix", at.URL)
	case u.Host == "" || strings.Contains(u.Host, ":"):
		return nil, fieldError(FieldURL, "%q names no bucket: write %s://bucket/prefix, and the address of a service into endpoint", at.URL, u.Scheme)
	}
	return u, nil
}

// readRoots adds the CA of the Secret to those that the image trusts; nil without
// one.
func readRoots(secret Secret) (*x509.CertPool, error) {
	ca := secret[KeyCA]
	if len(ca) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fieldError(FieldCredentials, "%s holds no certificate: it is to be the CA of the endpoint, as PEM", KeyCA)
	}
	return pool, nil
}

func trustRoots(transport *http.Transport, roots *x509.CertPool) {
	if roots != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
}

func newTransport(roots *x509.CertPool) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	trustRoots(t, roots)
	return t
}

// readPair reads two keys that need each other.
func readPair(secret Secret, first, second string) (a, b string, err error) {
	a, b = strings.TrimSpace(string(secret[first])), strings.TrimSpace(string(secret[second]))
	if (a == "") != (b == "") {
		return "", "", fieldError(FieldCredentials, "the Secret has one of %s and %s: it needs both, or neither to use the pod's own identity", first, second)
	}
	return a, b, nil
}

func openS3(ctx context.Context, at Location, bucket string, secret Secret, roots *x509.CertPool) (*blob.Bucket, error) {
	id, key, err := readPair(secret, KeyS3ID, KeyS3Secret)
	if err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{
		config.WithRegion(cmp.Or(at.Region, os.Getenv("AWS_REGION"), "us-east-1")),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), // the store itself tries again
	}
	if id != "" {
		static := credentials.NewStaticCredentialsProvider(id, key, strings.TrimSpace(string(secret[KeyS3Token])))
		options = append(options, config.WithCredentialsProvider(static))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fieldError(FieldCredentials, "%w", err)
	}
	if roots != nil { // otherwise AWS_CA_BUNDLE counts
		cfg.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { trustRoots(t, roots) })
	}
	of := &s3blob.Options{}
	if at.Endpoint != "" {
		if e, err := url.Parse(at.Endpoint); err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" {
			return nil, fieldError(FieldEndpoint, "%q is no address: write it as https://host:port", at.Endpoint)
		}
		cfg.BaseEndpoint = aws.String(at.Endpoint)
		// Amazon's newer checksums are not what others speak.
		cfg.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		cfg.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		of.RequestChecksumCalculation = cfg.RequestChecksumCalculation
	}
	return s3blob.OpenBucket(ctx, s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = at.PathStyle }), bucket, of)
}

// scopeGoogle is what a backup needs of Google Cloud: storage alone.
const scopeGoogle = "https://www.googleapis.com/auth/devstorage.read_write"

func openGoogle(ctx context.Context, bucket string, secret Secret, roots *x509.CertPool) (*blob.Bucket, error) {
	var found *google.Credentials
	var err error
	if key := secret[KeyGoogle]; len(key) > 0 {
		found, err = google.CredentialsFromJSONWithType(ctx, key, google.ServiceAccount, scopeGoogle)
	} else {
		found, err = google.FindDefaultCredentials(ctx, scopeGoogle)
	}
	if err != nil {
		return nil, fieldError(FieldCredentials, "%w: put the key of a service account into %s of the Secret, or give the pod an identity", err, KeyGoogle)
	}
	signed, err := gcp.NewHTTPClient(newTransport(roots), gcp.CredentialsTokenSource(found))
	if err != nil {
		return nil, fieldError(FieldCredentials, "%w", err)
	}
	return gcsblob.OpenBucket(ctx, signed, bucket, nil)
}

func openAzure(ctx context.Context, at Location, name string, secret Secret, roots *x509.CertPool) (*blob.Bucket, error) {
	account := strings.TrimSpace(cmp.Or(string(secret[KeyAzureAccount]), os.Getenv(KeyAzureAccount)))
	if account == "" {
		return nil, fieldError(FieldCredentials, "the Secret does not name the account: put it into %s", KeyAzureAccount)
	}
	address := cmp.Or(strings.TrimRight(at.Endpoint, "/"), "https://"+account+".blob.core.windows.net") + "/" + name
	options := &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: newTransport(roots)}, Retry: policy.RetryOptions{MaxRetries: -1}}}
	c, err := azureClient(address, account, secret, options)
	if err != nil {
		return nil, fieldError(FieldCredentials, "%w", err)
	}
	return azureblob.OpenBucket(ctx, c, nil)
}

func azureClient(address, account string, secret Secret, options *container.ClientOptions) (*container.Client, error) {
	if key := strings.TrimSpace(string(secret[KeyAzureKey])); key != "" {
		shared, err := container.NewSharedKeyCredential(account, key)
		if err != nil {
			return nil, err
		}
		return container.NewClientWithSharedKeyCredential(address, shared, options)
	}
	if signature := strings.TrimSpace(string(secret[KeyAzureSignature])); signature != "" {
		if strings.HasPrefix(address, "http:") {
			return nil, errors.New("a signature is sent as it is, and the endpoint begins with http: let it be https, or use " + KeyAzureKey)
		}
		return container.NewClientWithNoCredential(address+"?"+strings.TrimPrefix(signature, "?"), options)
	}
	identity, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return nil, err
	}
	return container.NewClient(address, identity, options)
}

func openDirectory(dir string) (*blob.Bucket, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fieldError(FieldURL, "there is no directory %s", dir)
	}
	return fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite, DirFileMode: 0o750})
}

// clearDirectory removes what is left of a prefix when its objects are gone.
func clearDirectory(dir, prefix string) error {
	root, err := os.OpenRoot(dir) // nothing outside of it, whatever the prefix
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return root.RemoveAll(filepath.FromSlash(strings.TrimSuffix(prefix, "/")))
}

// syncFile makes a file, and that it is there, survive a failure of the node. The
// group may read it: a restore runs as another user.
func syncFile(dir, key string) error {
	name := filepath.Join(dir, filepath.FromSlash(key))
	if err := os.Chmod(name, 0o640); err != nil {
		return err
	}
	for {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		// What is read afterwards is to be what the disk has.
		if err := errors.Join(f.Sync(), dropCache(f), f.Close()); err != nil {
			return err
		}
		if name == filepath.Clean(dir) {
			return nil
		}
		name = filepath.Dir(name)
	}
}
