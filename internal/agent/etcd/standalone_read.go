package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Soundness is what was found when all of the data was read.
type Soundness struct {
	Found
	// Closed says that etcd's own authentication is on: it answers no client that
	// has no password. Nothing else is set then.
	Closed bool
	// Keys that were read with their values, and the Size of both in bytes.
	Keys, Size int64
	// Hash of all revisions that are there.
	Hash uint32
}

const (
	// pageKeys are read at once: values have 1.5 MiB at most, by default.
	pageKeys = 100
	// pageLimit is how long one page may take.
	pageLimit = time.Minute
	// hashLimit is how long etcd may take to read all revisions.
	hashLimit = 30 * time.Minute
)

// ReadAll starts etcd as Inspect does, and has it read everything: every revision for
// its hash, and every key through the interface that clients use.
func (a *Standalone) ReadAll(ctx context.Context) (Soundness, error) {
	var s Soundness
	found, err := a.inspectWith(ctx, func(ctx context.Context, client *clientv3.Client) error {
		hashing, cancel := context.WithTimeout(ctx, hashLimit)
		defer cancel()
		hash, err := client.HashKV(hashing, client.Endpoints()[0], 0)
		if requiresLogin(err) {
			s.Closed = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("have etcd read all revisions: %w", err)
		}
		s.Hash = hash.Hash
		return s.readKeys(ctx, client)
	})
	s.Found = found
	return s, err
}

func requiresLogin(err error) bool {
	for _, refusal := range []error{rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionNotGranted} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// readKeys reads all keys of one revision, page by page.
func (s *Soundness) readKeys(ctx context.Context, client *clientv3.Client) error {
	from, revision, counted := "\x00", int64(0), int64(0)
	for {
		page, cancel := context.WithTimeout(ctx, pageLimit)
		got, err := client.Get(page, from, clientv3.WithFromKey(), clientv3.WithLimit(pageKeys), clientv3.WithRev(revision))
		cancel()
		if requiresLogin(err) {
			s.Closed = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("read all keys, %d so far: %w", s.Keys, err)
		}
		if revision == 0 {
			revision, counted = got.Header.Revision, got.Count
		}
		for _, kv := range got.Kvs {
			s.Keys++
			s.Size += int64(len(kv.Key) + len(kv.Value))
		}
		if !got.More {
			break
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
	if s.Keys != counted {
		return fmt.Errorf("etcd counts %d keys, and gives %d", counted, s.Keys)
	}
	return nil
}
