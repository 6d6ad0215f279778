package store

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// space is that of a volume whose storage does not enforce its size: what is
// written beyond that is taken from others on the same disk, databases perhaps.
type space struct {
	dir string
	// size of the volume as it was asked for.
	size int64
	// disk is where the volume is.
	disk func(dir string) disk

	mu   sync.Mutex
	used int64
	// counted says that used holds what was there before, and own is what was
	// found then.
	counted, own bool
}

// disk is a file system: what is free of it for all users, what is taken, and how
// much there is in all; nothing where that is unknown.
type disk struct{ free, taken, total int64 }

// takeSpace takes so much, or says why so much more is not to be written, and what to do about it. A
// volume that is a file system of its own knows by itself when it is full.
func (s *space) takeSpace(more int64) (remedy string, err error) {
	d := s.disk(s.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.counted {
		s.used, s.counted = sumFiles(s.dir), true
		s.own = s.isOwn(d)
	}
	if s.own {
		return "", nil
	}
	if d.total > 0 && d.free-more < leastFree(d.total) {
		return remedyDisk, fmt.Errorf("only %s of the disk that it is on are free, and members need some", inMiB(d.free))
	}
	if s.used+more > s.size {
		s.used = sumFiles(s.dir) // some may be gone
	}
	if s.used+more > s.size {
		return remedyFull, fmt.Errorf("it holds %s of %s", inMiB(s.used), inMiB(s.size))
	}
	s.used += more
	return "", nil
}

// isOwn says whether a disk is a file system of the volume's own: about as large
// as was asked for, and with nothing on it but what the volume holds. A node's may
// be of that size by chance.
func (s *space) isOwn(d disk) bool {
	const metadata = 64 << 20
	return d.total > 0 && d.total <= s.size+s.size/8 && d.taken <= s.used+d.total/20+metadata
}

// leastFree is what members want to be free of a disk as well: a fiftieth of it,
// from 48 MiB to 1 GiB.
func leastFree(total int64) int64 { return min(max(total/50, 48<<20), 1<<30) }

func inMiB(n int64) string { return resource.NewQuantity(n>>20<<20, resource.BinarySI).String() }

// sumFiles is how much the files below a directory hold. What cannot be read is
// none of the store's.
func sumFiles(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			if entry != nil && entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// checkSpace refuses to write so much where the volume has no disk space for it.
func (s *Store) checkSpace(op string, more int64) error {
	if s.space == nil {
		return nil
	}
	remedy, err := s.space.takeSpace(more)
	if err == nil {
		return nil
	}
	return s.explainFull(&Error{Op: op, Field: FieldURL, Permanent: true, Err: err, Remedy: remedy})
}

// explainFull says which store has no disk space left.
func (s *Store) explainFull(e *Error) error {
	e.Op += " in " + s.name
	if s.volume && e.Remedy == remedyFull {
		e.Remedy += "; spec.backup.volume.size is its size"
	}
	return e
}
