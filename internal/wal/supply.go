package wal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Supply fetches for a recovery what its restore_command asks for at a socket:
// there the credentials and the identity of the caller are, which no database gets. It
// answers by the way that the recovery is to take, and knows afterwards whether
// it took that one, to its end.
type Supply struct {
	Archive *Archive
	Way     Way
	// Dir is the data directory, which PostgreSQL's paths begin at, and Scratch
	// a directory for what is fetched ahead.
	Dir, Scratch string
	// Fetched is called with each file, once it is there.
	Fetched func(name string)
	// Patience is how long WAL may be under way that others lie behind.
	Patience time.Duration

	mu     sync.Mutex
	failed error
	// handed is, by the number of a segment, the oldest timeline that it was
	// given out of; refused, why it can be had of none. far is the highest number
	// that was asked for.
	handed  map[uint64]uint32
	refused map[uint64]error
	far     uint64
}

// RestoreCommand is the restore_command of a database, of the program that NewCommand is
// a part of.
func (*Supply) RestoreCommand(program, socket string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	return strings.ReplaceAll(quote(program)+" wal restore --socket "+quote(socket), "%", "%%") + " %f %p"
}

// ServeSocket answers the callers of a listener until ctx ends.
func (s *Supply) ServeSocket(ctx context.Context, listener net.Listener) {
	ServeSocket(ctx, listener, s.fetchAsked)
}

// FetchError says why a file could not be fetched that the archive may have; nil for
// none. The recovery has failed with it.
func (s *Supply) FetchError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *Supply) fetchAsked(ctx context.Context, asked string) error {
	name, to, found := strings.Cut(asked, " ")
	if _, _, err := objectKey(name); err != nil || !found || !filepath.IsLocal(to) {
		return fmt.Errorf("%q is no file that a recovery asks for", asked)
	}
	segment, is := ParseSegment(name, usualSize)
	err := ErrMissing
	if !is || s.Way.leadsThrough(segment) {
		err = s.Archive.FetchFile(ctx, name, filepath.Join(s.Dir, to), s.Scratch)
	}
	refused := (*Refusal)(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.Fetched(name)
	case errors.Is(err, ErrMissing):
	case errors.As(err, &refused): // to the recovery, which reads ahead, the WAL ends there
		err = ErrMissing
	case ctx.Err() == nil: // else no recovery waits for it any more
		s.failed = err
		return err
	default:
		return err
	}
	if is {
		s.noteAnswer(segment, err == nil, refused)
	}
	return err
}

// noteAnswer records what a segment was answered with.
func (s *Supply) noteAnswer(segment Segment, handed bool, refused *Refusal) {
	if s.handed == nil {
		s.handed, s.refused = map[uint64]uint32{}, map[uint64]error{}
	}
	n := segment.Number
	s.far = max(s.far, n)
	if oldest, again := s.handed[n]; handed && (!again || segment.Timeline < oldest) {
		s.handed[n] = segment.Timeline
	}
	if refused != nil {
		s.refused[n] = refused
	}
}
