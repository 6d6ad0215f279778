package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// dropCache drops what the node's memory still has of a file.
func dropCache(f *os.File) error {
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
