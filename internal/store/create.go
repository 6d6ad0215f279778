package store

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// ErrExists says that an object of that key is there already.
var ErrExists = errors.New("it is there already")

// Create writes a whole object that is not there yet, and leaves one that is as
// it was: the error is ErrExists. So it is, too, when an earlier try of the same
// call was carried out and its answer was lost.
//
// A service that knows no condition is asked before: of two that write such a
// key at the same moment, there the later one wins. So it is in a directory,
// but for those that use the same Store.
func (s *Store) Create(ctx context.Context, key string, data []byte) error {
	there, err := s.HasObject(ctx, key)
	if err == nil && there {
		return ErrExists
	}
	if err != nil {
		return err
	}
	there = false
	err = s.tryRequest(ctx, "write "+key, int64(len(data)), func(ctx context.Context) error {
		if s.keep != nil { // a directory is read, and then written
			s.creating.Lock()
			defer s.creating.Unlock()
		}
		err := s.uploadObject(ctx, key, data, true)
		if status, code := answerStatus(err); status == http.StatusNotImplemented || code == "NotImplemented" {
			err = s.uploadObject(ctx, key, data, false)
		}
		if there = gcerrors.Code(err) == gcerrors.FailedPrecondition; there {
			return nil
		}
		if _, code := answerStatus(err); code == "ConditionalRequestConflict" {
			return errors.New("another client writes it") // and another try shows what
		}
		if err != nil || s.keep == nil {
			return err
		}
		return s.keep(key)
	})
	if err == nil && there {
		return ErrExists
	}
	return err
}

func (s *Store) uploadObject(ctx context.Context, key string, data []byte, fresh bool) error {
	return s.bucket.Upload(ctx, key, bytes.NewReader(data), &blob.WriterOptions{ContentType: "application/octet-stream", IfNotExist: fresh})
}

// HasObject says whether an object is there.
func (s *Store) HasObject(ctx context.Context, key string) (there bool, err error) {
	err = s.tryRequest(ctx, "look for "+key, 0, func(ctx context.Context) error {
		there, err = s.bucket.Exists(ctx, key)
		return err
	})
	return there, err
}
