package postgres

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/backup"
)

// Names in a base backup.
const (
	manifestName = "backup_manifest"
	walDir       = "pg_wal"
	// statusDir holds a sign for each segment of the WAL, which PostgreSQL makes
	// up while it sends the WAL, after the end of the backup.
	statusDir = walDir + "/archive_status"
	// controlName is sent last, and holds the time of the latest checkpoint.
	controlName = "global/pg_control"
)

// manifest is PostgreSQL's own, of the versions that Holdfast runs.
type manifest struct {
	Files    []listed    `json:"Files"`
	Ranges   []walRange  `json:"WAL-Ranges"`
	System   json.Number `json:"System-Identifier"`
	Checksum string      `json:"Manifest-Checksum"`
}

type listed struct {
	Path      string `json:"Path"`
	Encoded   string `json:"Encoded-Path"`
	Size      int64  `json:"Size"`
	Algorithm string `json:"Checksum-Algorithm"`
	Checksum  string `json:"Checksum"`
}

// walRange is a part of the WAL that the copy needs to be consistent.
type walRange struct {
	Timeline uint32 `json:"Timeline"`
	Start    string `json:"Start-LSN"`
	End      string `json:"End-LSN"`
}

// file as it is in the copy.
type file struct {
	size     int64
	checksum string
}

// VerifyCopy implements backup.Source: what pg_verifybackup does, on a stream. Every
// file is as PostgreSQL's manifest lists it, none is missing or beside it, the
// manifest is whole, and the WAL that the copy needs is there and can be read.
func (s *Source) VerifyCopy(ctx context.Context, from io.Reader) (backup.Facts, error) {
	files, text, ended := map[string]file{}, []byte(nil), clock{}
	logs, err := os.MkdirTemp(s.Scratch, "log-")
	if err != nil {
		return backup.Facts{}, fmt.Errorf("free disk space for the WAL: %w", err)
	}
	defer os.RemoveAll(logs) //nolint:errcheck // it goes with the pod
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return backup.Facts{}, fmt.Errorf("read the copy: %w", err)
		}
		name := path.Clean(header.Name)
		ended.noteHeader(header)
		switch {
		case name == manifestName:
			text, err = io.ReadAll(archive)
		case header.Typeflag == tar.TypeReg && (path.Dir(name) == walDir || name == controlName):
			files[name], err = keepSegment(archive, filepath.Join(logs, path.Base(name)))
		case header.Typeflag == tar.TypeReg:
			files[name], err = digestFile(archive)
		}
		if err != nil {
			return backup.Facts{}, fmt.Errorf("read %s of the copy: %w", name, err)
		}
	}
	facts, ranges, err := checkCopy(files, text)
	if err != nil {
		return backup.Facts{}, &backup.Permanent{Err: err}
	}
	for _, r := range ranges {
		if err := s.readWAL(ctx, logs, r, &ended); err != nil {
			return backup.Facts{}, err
		}
	}
	if err := s.noteCheckpoint(ctx, logs, &ended); err != nil {
		return backup.Facts{}, err
	}
	facts.Ended = ended.at
	return facts, s.checkEnd(facts.End)
}

// checkEnd refuses a copy that ends too early. Another one may not.
func (s *Source) checkEnd(end string) error {
	if s.AtLeast == "" {
		return nil
	}
	want, err := readPosition(s.AtLeast)
	if err != nil {
		return err
	}
	got, err := readPosition(end)
	if err == nil && got.isBefore(want) {
		err = fmt.Errorf("the copy ends at %s, and the cluster had WAL up to %s when it was planned", got, want)
	}
	return err
}

// keepSegment keeps a segment of the WAL, to be read when all of it is there.
func keepSegment(from io.Reader, name string) (file, error) {
	to, err := os.Create(name) //nolint:gosec // the base name alone
	if err != nil {
		return file{}, err
	}
	f, err := digestFile(io.TeeReader(from, to))
	return f, errors.Join(err, to.Close())
}

func digestFile(from io.Reader) (file, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, from)
	return file{n, hex.EncodeToString(sum.Sum(nil))}, err
}

func checkCopy(files map[string]file, text []byte) (backup.Facts, []walRange, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return backup.Facts{}, nil, fmt.Errorf("the copy has no manifest that can be read: %w", err)
	}
	if err := m.checkSum(text); err != nil {
		return backup.Facts{}, nil, err
	}
	if err := m.compareFiles(files); err != nil {
		return backup.Facts{}, nil, err
	}
	if len(m.Ranges) == 0 {
		return backup.Facts{}, nil, errors.New("the copy does not say which WAL it needs")
	}
	for _, r := range m.Ranges {
		if err := r.checkCovered(files); err != nil {
			return backup.Facts{}, nil, err
		}
	}
	// The newest timeline comes first.
	first, last := m.Ranges[len(m.Ranges)-1], m.Ranges[0]
	return backup.Facts{SystemIdentifier: m.System.String(), Start: first.formatPosition(first.Start), End: last.formatPosition(last.End)}, m.Ranges, nil
}

// checkSum compares a manifest with the checksum in its last line.
func (m manifest) checkSum(text []byte) error {
	end := bytes.LastIndex(text, []byte(`"Manifest-Checksum"`))
	if end < 0 {
		return errors.New("the manifest of the copy has no checksum")
	}
	if sum := sha256.Sum256(text[:end]); hex.EncodeToString(sum[:]) != m.Checksum {
		return errors.New("the manifest of the copy is not what PostgreSQL wrote")
	}
	return nil
}

// compareFiles compares files with those of the manifest.
func (m manifest) compareFiles(files map[string]file) error {
	known := make(map[string]bool, len(m.Files))
	for _, want := range m.Files {
		name := want.Path
		if want.Encoded != "" {
			raw, err := hex.DecodeString(want.Encoded)
			if err != nil {
				return fmt.Errorf("the manifest of the copy names a file %q", want.Encoded)
			}
			name = string(raw)
		}
		known[name] = true
		got, found := files[name]
		switch {
		case !found:
			return fmt.Errorf("file %s is missing from the copy", name)
		case got.size != want.Size:
			return fmt.Errorf("file %s of the copy has %d bytes, and %d are listed", name, got.size, want.Size)
		case want.Algorithm != "SHA256" || want.Checksum != got.checksum:
			return fmt.Errorf("file %s of the copy has the SHA-256 %s, and %s %s is listed", name, got.checksum, cmp.Or(want.Algorithm, "no checksum"), want.Checksum)
		}
	}
	for name := range files {
		if !known[name] && !strings.HasPrefix(name, walDir+"/") && !unlisted[name] {
			return fmt.Errorf("file %s of the copy is not listed", name)
		}
	}
	return nil
}

// unlisted are the files that pg_verifybackup does not look for either.
var unlisted = map[string]bool{"postgresql.auto.conf": true, "standby.signal": true, "recovery.signal": true}

func (r walRange) formatPosition(at string) string { return fmt.Sprintf("%d:%s", r.Timeline, at) }

// checkCovered says which segment of the WAL is missing.
func (r walRange) checkCovered(files map[string]file) error {
	start, err := parseLSN(r.Start)
	if err != nil {
		return err
	}
	end, err := parseLSN(r.End)
	if err != nil {
		return err
	}
	if end <= start {
		return fmt.Errorf("the copy needs the WAL from %s to %s, which is nothing", r.Start, r.End)
	}
	size := segmentSize(files)
	if size == 0 {
		return errors.New("the copy holds no WAL, and is not consistent without")
	}
	perID := uint64(1<<32) / size
	for n := uint64(start) / size; n <= uint64(end-1)/size; n++ {
		name := fmt.Sprintf("%s/%08X%08X%08X", walDir, r.Timeline, n/perID, n%perID)
		if f, found := files[name]; !found || uint64(f.size) != size {
			return fmt.Errorf("the WAL segment %s is missing from the copy, which is not consistent without", name)
		}
	}
	return nil
}

// segmentSize is that of the WAL's segments: all have the same, a power of two.
func segmentSize(files map[string]file) uint64 {
	size := int64(0)
	for name, f := range files {
		base, inLog := strings.CutPrefix(name, walDir+"/")
		if inLog && len(base) == 24 && strings.Trim(base, "0123456789ABCDEF") == "" {
			size = max(size, f.size)
		}
	}
	if size < 1<<20 || size > 1<<30 || size&(size-1) != 0 {
		return 0
	}
	return uint64(size)
}
