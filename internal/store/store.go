// Package store keeps objects by name in S3 and what speaks it, in Google Cloud
// Storage, in Azure Blob Storage, or in a directory. It distinguishes what is worth
// another try from what only a person can repair, and names the field to repair.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"
)

// Location says where a store is.
type Location struct {
	// URL such as s3://bucket/prefix, gs://bucket/prefix,
	// azblob://container/prefix or file:///directory.
	URL string
	// Endpoint of a service that speaks S3, such as https://minio.example:9000.
	// Default: Amazon's.
	Endpoint string
	// Region of the bucket, for S3. Default: AWS_REGION, else us-east-1.
	Region string
	// Volume is the name of the volume that a directory is on, for people.
	Volume string
	// Size of that volume, in bytes, where no more than that is to be written to
	// it; 0 for whatever it takes.
	Size int64
	// PathStyle puts the bucket into the path, not into the name of the host.
	PathStyle bool
}

// Secret is what a user's Secret of credentials holds, by key. Without keys,
// the identity that the pod runs with is used.
type Secret map[string][]byte

// Keys of a Secret.
const (
	KeyS3ID           = "AWS_ACCESS_KEY_ID"
	KeyS3Secret       = "AWS_SECRET_ACCESS_KEY" //nolint:gosec // the name of a key
	KeyS3Token        = "AWS_SESSION_TOKEN"     //nolint:gosec // the name of a key
	KeyGoogle         = "credentials.json"
	KeyAzureAccount   = "AZURE_STORAGE_ACCOUNT"
	KeyAzureKey       = "AZURE_STORAGE_KEY"
	KeyAzureSignature = "AZURE_STORAGE_SAS_TOKEN" //nolint:gosec // the name of a key
	// KeyCA is a CA that the endpoint's certificate may be of, as PEM.
	KeyCA = "ca.crt"
)

// Store is a place for objects.
type Store struct {
	bucket *blob.Bucket
	// keep makes an object durable once it is written; nil where the service
	// does.
	keep func(key string) error
	// creating is held while an object of a directory is created.
	creating sync.Mutex
	// address is the field of the destination that says where the store is.
	address string
	// clear removes the directories below a prefix; nil where there are none.
	clear func(prefix string) error
	// name of the store, for people.
	name string
	// volume says that it is one of the cluster's own.
	volume bool
	// space of it; nil where it is not checked.
	space *space
	// ownIdentity says that no Secret holds credentials: tokens are made anew.
	ownIdentity bool
	// Patience with a store that does not answer.
	Patience Patience
	// OnRetry, where it is set, gets the error of each try that is made again, and
	// until when that is done; a nil error says that such a try has succeeded. It
	// is called by several goroutines.
	OnRetry func(err error, until time.Time)
}

// patience is for each object by itself: a service that is away for ten minutes
// is waited for.
var patience = Patience{First: 500 * time.Millisecond, Longest: 30 * time.Second, Total: 12 * time.Minute}

const (
	// answerTime is how long one request may take, and slowest the bytes a
	// second that it may take longer for: what is slower than that hangs.
	answerTime = time.Minute
	slowest    = 64 << 10
	// pageSize is how many objects are asked for at once.
	pageSize = 1000
	// deletions are how many objects are deleted at once.
	deletions = 8
	// unknownSize is allowed to an object whose size is not known.
	unknownSize = 16 << 20
)

// Object is one of a store.
type Object struct {
	Key  string
	Size int64
	Time time.Time
}

// Close lets go of the store.
func (s *Store) Close() error { return s.bucket.Close() }

// Put writes a whole object. It replaces one of that key.
func (s *Store) Put(ctx context.Context, key string, data []byte) error {
	if err := s.checkSpace("write "+key, int64(len(data))); err != nil {
		return err
	}
	return s.tryRequest(ctx, "write "+key, int64(len(data)), func(ctx context.Context) error {
		// Any other way of writing, with an MD5 too, panics on Azure when it fails.
		err := s.bucket.Upload(ctx, key, bytes.NewReader(data), &blob.WriterOptions{ContentType: "application/octet-stream"})
		if err != nil || s.keep == nil {
			return err
		}
		return s.keep(key)
	})
}

// Get reads a whole object. The error of one that is not there is NotFound.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	return s.getObject(ctx, key, unknownSize)
}

func (s *Store) getObject(ctx context.Context, key string, size int64) ([]byte, error) {
	var data []byte
	err := s.tryRequest(ctx, "read "+key, size, func(ctx context.Context) (err error) {
		data, err = s.bucket.ReadAll(ctx, key)
		return err
	})
	return data, err
}

// List is what lies below a prefix, by key.
func (s *Store) List(ctx context.Context, prefix string) ([]Object, error) {
	var found []Object
	err := s.listPages(ctx, &blob.ListOptions{Prefix: prefix}, func(o *blob.ListObject) {
		found = append(found, Object{Key: o.Key, Size: o.Size, Time: o.ModTime})
	})
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	return found, err
}

// ListDirs lists the directories right below a prefix, sorted: each begins with the
// prefix, as a key does, and ends with a slash. What they hold is not read.
func (s *Store) ListDirs(ctx context.Context, prefix string) ([]string, error) {
	var found []string
	err := s.listPages(ctx, &blob.ListOptions{Prefix: prefix, Delimiter: "/"}, func(o *blob.ListObject) {
		if o.IsDir {
			found = append(found, o.Key)
		}
	})
	slices.Sort(found)
	return found, err
}

// listTries are those of a list of a directory: a file that another process has
// finished meanwhile has lost its temporary name, and the list fails for it.
const listTries = 20

// listPages asks for a list, page by page.
func (s *Store) listPages(ctx context.Context, options *blob.ListOptions, each func(*blob.ListObject)) error {
	for token := blob.FirstPageToken; len(token) > 0; {
		var page []*blob.ListObject
		var next []byte
		err := s.tryRequest(ctx, "list "+options.Prefix, 0, func(ctx context.Context) (err error) {
			for range listTries {
				if page, next, err = s.bucket.ListPage(ctx, token, pageSize, options); !errors.Is(err, fs.ErrNotExist) {
					break
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, o := range page {
			each(o)
		}
		token = next
	}
	return nil
}

// Delete removes an object. That it is gone already is no error.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := s.tryRequest(ctx, "delete "+key, 0, func(ctx context.Context) error { return s.bucket.Delete(ctx, key) })
	if NotFound(err) {
		return nil
	}
	return err
}

// DeleteAll removes everything below a prefix, which ends with a slash so that
// no neighbour begins alike. Nothing else goes before all that first says is
// gone; nil where the order does not matter.
func (s *Store) DeleteAll(ctx context.Context, prefix string, first func(key string) bool) error {
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("prefix %q has no slash at its end", prefix)
	}
	all, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	var before, rest []Object
	for _, o := range all {
		if first != nil && first(o.Key) {
			before = append(before, o)
		} else {
			rest = append(rest, o)
		}
	}
	for _, some := range [][]Object{before, rest} {
		if err := s.deleteEach(ctx, some); err != nil {
			return err
		}
	}
	if s.clear == nil {
		return nil
	}
	return s.explainError("delete "+prefix, s.clear(prefix))
}

func (s *Store) deleteEach(ctx context.Context, some []Object) error {
	group, deleting := errgroup.WithContext(ctx)
	group.SetLimit(deletions)
	for _, o := range some {
		group.Go(func() error { return s.Delete(deleting, o.Key) })
	}
	return group.Wait()
}

const (
	// probe is the name of the object by which a store is checked. It is always
	// the same one, so that credentials that may not delete leave no more than that.
	probe = "probe-store"
	// probeTries are for another check of the same prefix, which removes it.
	probeTries = 3
)

// CheckAccess says whether the store can do all that backups need below a prefix, by
// doing it with an object of its own. The first thing that it cannot do is the
// error. All checks of a prefix write the same, and may be done at a time.
func (s *Store) CheckAccess(ctx context.Context, prefix string) error {
	key := prefix + probe
	if _, err := s.List(ctx, key); err != nil {
		return s.noStore(err)
	}
	var got []byte
	var err error
	for range probeTries {
		if err = s.Put(ctx, key, []byte(key)); err != nil {
			return err
		}
		if got, err = s.Get(ctx, key); !NotFound(err) {
			break
		}
	}
	if err == nil && string(got) != key {
		err = &Error{Op: "read " + key, Field: FieldURL, Permanent: true, Err: errors.New("the store answers something else than what was written")}
	}
	return errors.Join(err, s.Delete(ctx, key))
}

// noStore says of a list that was not found, without a reason of the store's own,
// that there may be no store at all: one lists what is empty, too.
func (s *Store) noStore(err error) error {
	if e := (*Error)(nil); errors.As(err, &e) && e.Missing && e.Remedy == "" {
		e.Field, e.Remedy = s.address, remedyNoStore
	}
	return err
}

// tryRequest does something with so many bytes until it is done, cannot be done, or
// patience ends. A request that hangs is one that failed.
func (s *Store) tryRequest(ctx context.Context, op string, size int64, do func(context.Context) error) error {
	allowed := answerTime + time.Duration(size/slowest)*time.Second
	until, failed := time.Now().Add(s.Patience.Total), false
	return s.Patience.TryUntilDone(ctx, func(ctx context.Context) (final bool, err error) {
		ctx, cancel := context.WithTimeoutCause(ctx, allowed, fmt.Errorf("no answer within %s", allowed))
		defer cancel()
		err = do(ctx)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		err = s.explainError(op, err)
		var e *Error
		final = errors.As(err, &e) && e.Permanent
		if s.OnRetry != nil && (failed || err != nil) && !final {
			s.OnRetry(err, until)
		}
		failed = err != nil
		return final, err
	})
}
