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
// there the keys and the identity of the caller are, which no database gets. It
// answers by the way that the recovery is to take, and knows afterwards whether
// it took that one, to its end.
type Supply struct {
	Archive *Archive
	Way     Way
	// Dir is the data directory, which PostgreSQL's paths begin at, and Scratch
	// a directory for what is fetched ahead.
	Dir, Scratch string
	// Fetched is told of each file, once it is there.
	Fetched func(name string)
	// Patience is how long log may be under way that others lie behind.
	Patience time.Duration

	mu     sync.Mutex
	failed error
	// handed is, by the number of a segment, the oldest timeline that it was
	// handed out of; refused, why it can be had of none. far is the highest number
	// that was asked for.
	handed  map[uint64]uint32
	refused map[uint64]error
	far     uint64
}

// Command is the restore_command of a database, of the program that Command is
// a part of.
func (*Supply) Command(program, socket string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	return strings.ReplaceAll(quote(program)+" wal restore --socket "+quote(socket), "%", "%%") + " %f %p"
}

// Serve a listener until ctx ends.
func (s *Supply) Serve(ctx context.Context, listener net.Listener) { Serve(ctx, listener, s.fetch) }

// Failed is why a file could not be fetched that the archive may have; nil for
// none. The recovery has failed with it.
func (s *Supply) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *Supply) fetch(ctx context.Context, asked string) error {
	name, to, found := strings.Cut(asked, " ")
	if _, _, err := object(name); err != nil || !found || !filepath.IsLocal(to) {
		return fmt.Errorf("%q is no file that a recovery asks for", asked)
	}
	segment, is := Parse(name, usual)
	err := ErrMissing
	if !is || s.Way.through(segment) {
		err = s.Archive.Fetch(ctx, name, filepath.Join(s.Dir, to), s.Scratch)
	}
	refused := (*Refusal)(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.Fetched(name)
	case errors.Is(err, ErrMissing):
	case errors.As(err, &refused): // to the recovery, which reads ahead, the log ends there
		err = ErrMissing
	case ctx.Err() == nil: // else nobody waits for it any more
		s.failed = err
		return err
	default:
		return err
	}
	if is {
		s.note(segment, err == nil, refused)
	}
	return err
}

// note what a segment was answered with.
func (s *Supply) note(segment Segment, handed bool, refused *Refusal) {
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
