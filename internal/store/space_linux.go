package store

import "golang.org/x/sys/unix"

// diskOf is the space of the file system that holds a directory. What only root
// may fill is not free.
func diskOf(dir string) disk {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return disk{}
	}
	return disk{free: int64(s.Bavail) * s.Bsize, taken: int64(s.Blocks-s.Bfree) * s.Bsize, total: int64(s.Blocks) * s.Bsize}
}
