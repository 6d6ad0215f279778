package datavolume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
)

// Copy is the record of a complete copy.
type Copy struct {
	// Group whose data it is.
	Group string `json:"group"`
	// Donor that it was cloned from.
	Donor string `json:"donor"`
	// Version of the donor.
	Version string `json:"version"`
}

// CompleteCopy records that the copy is complete. The caller has ended what wrote it.
func CompleteCopy(dir string, c Copy) error {
	return atomicfile.WriteJSON(filepath.Join(dir, CompleteName), c)
}

// Tidy repairs what a crash left: what was not finished is removed, and a complete copy
// is installed. It says whether a copy came into place.
//
// No data that a server ran on is removed, but for a copy that replaces another one
// which never joined the group: the first that was replaced stays.
func Tidy(dir string) (installed bool, err error) {
	if err := removeDirectories(dir, BootstrapName, SeedName, DropName); err != nil {
		return false, err
	}
	if err := finishBootstrap(dir); err != nil {
		return false, err
	}
	var complete Copy
	found, err := atomicfile.ReadJSON(filepath.Join(dir, CompleteName), &complete)
	if err != nil {
		return false, err
	}
	if !found {
		return false, removeDirectories(dir, CopyName)
	}
	hasCopy, err := exists(dir, CopyName)
	if err != nil {
		return false, err
	}
	if hasCopy {
		if err := installCopy(dir, complete); err != nil {
			return false, err
		}
	}
	if err := os.Remove(filepath.Join(dir, CompleteName)); err != nil {
		return false, fmt.Errorf("tidy the volume: %w", err)
	}
	return true, atomicfile.SyncDir(dir)
}

// KeepPrepared keeps the data directory of a server that is to clone.
func KeepPrepared(dir string) error {
	return atomicfile.Move(filepath.Join(dir, SeedName), filepath.Join(dir, PreparedName))
}

// DropPrepared removes a data directory that KeepPrepared kept.
func DropPrepared(dir string) error { return removeDirectories(dir, PreparedName) }

// finishBootstrap marks first data that is in its place as such.
func finishBootstrap(dir string) error {
	m, err := ReadMark(dir)
	if err != nil || !m.Installing {
		return err
	}
	hasData, err := exists(dir, DataName)
	if err != nil || !hasData {
		return err
	}
	return MarkGroup(dir, m.Group)
}

func installCopy(dir string, c Copy) error {
	if err := MarkGroup(dir, c.Group); err != nil {
		return err
	}
	hasData, err := exists(dir, DataName)
	if err != nil {
		return err
	}
	if hasData {
		hasOld, err := exists(dir, OldName)
		if err != nil {
			return err
		}
		aside := OldName
		if hasOld {
			aside = DropName
		}
		if err := atomicfile.Move(filepath.Join(dir, DataName), filepath.Join(dir, aside)); err != nil {
			return err
		}
		if err := removeDirectories(dir, DropName); err != nil {
			return err
		}
	}
	return atomicfile.Move(filepath.Join(dir, CopyName), filepath.Join(dir, DataName))
}

// DropOld removes data that a copy has replaced, and says whether there was any. The
// copy is a member of the group by then.
func DropOld(dir string) (bool, error) {
	hasOld, err := exists(dir, OldName)
	if err != nil || !hasOld {
		return false, err
	}
	if err := atomicfile.Move(filepath.Join(dir, OldName), filepath.Join(dir, DropName)); err != nil {
		return false, err
	}
	return true, removeDirectories(dir, DropName)
}

func exists(dir, name string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func removeDirectories(dir string, names ...string) error {
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("tidy the volume: %w", err)
		}
	}
	return nil
}
