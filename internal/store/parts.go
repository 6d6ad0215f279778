package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
)

// Part is a piece of a stream: an object of its own, so that each can be tried
// again, and several be under way at once.
type Part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// PartSize is a good size of a part, in bytes. Services that speak S3 get it in
// one request: what a pod that is killed has uploaded in pieces would stay, and
// no list shows it.
const PartSize = 15 << 20

// atOnce is how many parts are under way. So many are held in memory, and one
// more.
const atOnce = 4

// WriteParts cuts a stream into parts below a prefix, each of a size in bytes
// but for the last. Each that is stored is passed to done, in any order.
func (s *Store) WriteParts(ctx context.Context, prefix string, from io.Reader, size int, done func(Part)) ([]Part, error) {
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	stored := make(chan Part)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for p := range stored {
			done(p)
		}
	}()
	var parts []Part
	var failed error
	for more := true; more && writing.Err() == nil; {
		data := make([]byte, size)
		n, err := io.ReadFull(from, data)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			more = false
		case err != nil:
			failed, more = err, false
			continue
		}
		if n == 0 {
			continue
		}
		sum := sha256.Sum256(data[:n])
		part := Part{Name: fmt.Sprintf("%06d", len(parts)), Size: int64(n), SHA256: hex.EncodeToString(sum[:])}
		parts = append(parts, part)
		group.Go(func() error {
			if err := s.Put(writing, prefix+part.Name, data[:n]); err != nil {
				return err
			}
			stored <- part
			return nil
		})
	}
	err := group.Wait()
	close(stored)
	<-finished
	if failed == nil {
		failed = err
	}
	return parts, failed
}

// ReadParts is the stream that parts below a prefix were cut from. Nothing of a
// part is handed out before all of it is known to be what was written. The
// reader must be closed.
func (s *Store) ReadParts(ctx context.Context, prefix string, parts []Part) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	r := &partReader{ctx: ctx, cancel: cancel, next: make(chan chan fetched, atOnce-1)}
	go func() {
		defer close(r.next)
		for _, p := range parts {
			answer := make(chan fetched, 1)
			select {
			case <-ctx.Done():
				return
			case r.next <- answer:
			}
			go func() { answer <- s.fetchPart(ctx, prefix, p) }()
		}
	}()
	return r
}

type fetched struct {
	data []byte
	err  error
}

func (s *Store) fetchPart(ctx context.Context, prefix string, p Part) fetched {
	data, err := s.getObject(ctx, prefix+p.Name, p.Size)
	if err != nil {
		return fetched{nil, err}
	}
	if sum := sha256.Sum256(data); int64(len(data)) != p.Size || hex.EncodeToString(sum[:]) != p.SHA256 {
		return fetched{nil, &Error{Op: "read " + prefix + p.Name, Permanent: true, Err: errors.New("what the store holds is not what was written")}}
	}
	return fetched{data, nil}
}

type partReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	next   chan chan fetched
	left   []byte
	err    error
}

// Read implements io.Reader.
func (r *partReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 && r.err == nil {
		answer, more := <-r.next
		if !more {
			if r.err = r.ctx.Err(); r.err == nil {
				r.err = io.EOF
			}
			break
		}
		got := <-answer
		r.left, r.err = got.data, got.err
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// Close implements io.Closer.
func (r *partReader) Close() error {
	r.cancel()
	return nil
}
