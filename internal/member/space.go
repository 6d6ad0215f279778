package member

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// Space of a volume, in bytes. The zero value is unknown.
type Space struct{ Free, Total int64 }

// SpaceOf is the space of the file system that holds a directory. What only
// root may fill is not free.
func SpaceOf(dir string) Space {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return Space{}
	}
	return Space{Free: int64(s.Bavail) * s.Bsize, Total: int64(s.Blocks) * s.Bsize}
}

// Fits says whether so much is free. An unknown space has room: that it runs
// out is seen then.
func (s Space) Fits(size int64) bool { return s.Total == 0 || s.Free >= size }

// spaceInterval is between two looks at a volume that fills: it is all the
// warning that an operator has of one that is about to be full.
const spaceInterval = 2 * time.Second

// FollowSpace reports how large a volume is, and how much of it is used, until
// ctx ends.
func FollowSpace(ctx context.Context, store *Store, look func() Space) {
	for ctx.Err() == nil {
		space := look()
		store.Update(func(s *memberapi.Status) { s.VolumeSize, s.VolumeUsed = space.Total, space.Total-space.Free })
		select {
		case <-ctx.Done():
		case <-time.After(spaceInterval):
		}
	}
}
