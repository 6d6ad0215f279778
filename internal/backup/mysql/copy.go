package mysql

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/innodbpage"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// aboutFormat is raised when an older program could not read a copy.
const aboutFormat = 1

// aboutCopy is the first file of a copy, which says what the rest is. It is a file's format:
// fields are added, and never moved.
type aboutCopy struct {
	Format  int    `json:"format"`
	Version string `json:"version"`
	// Group that the data belongs to: its system identifier.
	Group string `json:"group"`
	// Executed transactions, as MySQL writes them.
	Executed string `json:"executed"`
	// EndedMicros is when the copied member had committed them, by its clock, in
	// microseconds since 1970.
	EndedMicros int64 `json:"endedMicros"`
	// Tablespaces are the files that MySQL keeps its tables in, by their paths below the data
	// directory: a copy without one of them is none.
	Tablespaces []string `json:"tablespaces"`
}

func (a aboutCopy) executed() mysqlgtid.Set {
	set, _ := mysqlgtid.Parse(a.Executed) // facts has read it
	return set
}

func (a aboutCopy) facts() (backup.Facts, error) {
	set, err := parseSet(a.Executed)
	if err != nil {
		return backup.Facts{}, err
	}
	return backup.Facts{
		Version: a.Version, SystemIdentifier: a.Group, Start: set.String(), End: set.String(), Ended: time.UnixMicro(a.EndedMicros).UTC(),
	}, nil
}

// isDirLeftOut says whether a directory of a data directory is no part of a copy. All others
// are databases, whatever their names: MySQL writes a number sign in those in another way.
func isDirLeftOut(name string) bool { return name == "#innodb_temp" || name == "#clone" }

// isFileLeftOut says whether a file of a data directory is no part of a copy: what identifies
// the server, what MySQL makes again, and what belongs to a group that was left.
func isFileLeftOut(name string) bool {
	dir, base := path.Split(name)
	switch {
	case path.Ext(base) == ".ibd", path.Ext(base) == ".ibu":
		return false // a tablespace, whatever else its name begins with
	case strings.HasPrefix(base, "."), dir == "#innodb_redo/" && strings.HasSuffix(base, "_tmp"):
		return true
	case dir != "":
		return false
	case base == "auto.cnf", base == "mysqld-auto.cnf":
		return true
	}
	for _, prefix := range []string{"binlog.", "relay", "ibtmp"} {
		if strings.HasPrefix(base, prefix) {
			return true
		}
	}
	switch path.Ext(base) {
	case ".pem", ".pid", ".sock", ".lock", ".dblwr", ".bdblwr", ".err":
		return true
	}
	return false
}

// writeCopy writes a data directory, of a server that was shut down, as a tar.
func writeCopy(ctx context.Context, dir string, about aboutCopy, to io.Writer) error {
	archive := tar.NewWriter(to)
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	if err := writeEntry(archive, mysqlapi.AboutCopyFile, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it was only read
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return nil
		case entry.IsDir() && isDirLeftOut(name):
			return fs.SkipDir
		case entry.IsDir():
			return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o700})
		case isFileLeftOut(name):
			return nil
		case !entry.Type().IsRegular():
			return &backup.Permanent{Err: fmt.Errorf("%s is neither a file nor a directory: tables outside of the data directory are not copied", name)}
		}
		return writeFile(archive, root, name)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func writeFile(archive *tar.Writer, root *os.Root, name string) error {
	file, err := root.Open(filepath.FromSlash(name))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return writeEntry(archive, name, info.Size(), file)
}

func writeEntry(archive *tar.Writer, name string, size int64, from io.Reader) error {
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600}); err != nil {
		return err
	}
	_, err := io.Copy(archive, from)
	return err
}

// VerifyCopy implements backup.Source: every page of every tablespace has the checksum
// that InnoDB gave it, and stands where it belongs.
func (s *Source) VerifyCopy(_ context.Context, from io.Reader) (backup.Facts, error) {
	archive := tar.NewReader(from)
	about, err := readAbout(archive)
	if err != nil {
		return backup.Facts{}, err
	}
	found := map[string]bool{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return backup.Facts{}, fmt.Errorf("read the copy: %w", err)
		}
		name := path.Clean(header.Name)
		if header.Typeflag != tar.TypeReg || !innodbpage.IsTablespace(name) {
			continue // Next reads it
		}
		if err := verifyTablespace(name, archive); err != nil {
			return backup.Facts{}, err
		}
		found[name] = true
	}
	for _, name := range append([]string{"ibdata1", "mysql.ibd", "undo_001", "undo_002"}, about.Tablespaces...) {
		if !found[name] {
			return backup.Facts{}, &backup.Permanent{Err: fmt.Errorf("file %s is missing from the copy", name)}
		}
	}
	facts, err := about.facts()
	if err != nil {
		return backup.Facts{}, &backup.Permanent{Err: err}
	}
	return facts, nil
}

func readAbout(archive *tar.Reader) (about aboutCopy, err error) {
	header, err := archive.Next()
	if err != nil {
		return about, fmt.Errorf("read the copy: %w", err)
	}
	if header.Name != mysqlapi.AboutCopyFile {
		return about, &backup.Permanent{Err: fmt.Errorf("the copy begins with %s, and not with what it is", header.Name)}
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		return about, fmt.Errorf("read the copy: %w", err)
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return about, &backup.Permanent{Err: fmt.Errorf("the copy does not say what it is: %w", err)}
	}
	if about.Format != aboutFormat {
		return about, &backup.Permanent{Err: fmt.Errorf("the copy has the format %d, which this version of Holdfast does not know: use a newer one", about.Format)}
	}
	return about, nil
}

func verifyTablespace(name string, from io.Reader) error {
	_, err := innodbpage.CheckFile(from)
	if damage := (*innodbpage.Damage)(nil); errors.As(err, &damage) {
		return &backup.Permanent{Err: fmt.Errorf("file %s of the copy: %w", name, err)}
	}
	if err != nil {
		return fmt.Errorf("read %s of the copy: %w", name, err)
	}
	return nil
}
