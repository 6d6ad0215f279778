package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Owner is who an archive is of.
type Owner = logarchive.Owner

// Archive is the WAL of one database system in a store.
type Archive struct {
	Store *store.Store
	// Prefix of all its objects; it ends with a slash.
	Prefix string
	// Log takes what a person may want to know of what is stored; nil for nowhere.
	Log *slog.Logger

	// system that the archive was claimed for.
	system  string
	packing sync.Mutex
	packer  *zstd.Encoder
}

// Open opens the store of an archive, with the credentials that are mounted in a
// directory.
func Open(ctx context.Context, at agentapi.BackupStore, prefix string, secret store.Secret) (*Archive, error) {
	s, err := logarchive.OpenStore(ctx, at, secret)
	if err != nil {
		return nil, err
	}
	return &Archive{Store: s, Prefix: prefix}, nil
}

// Close lets go of the store.
func (a *Archive) Close() error { return a.Store.Close() }

// ClaimArchive makes the archive the owner's, before anything is stored there. It
// refuses one of another owner: two database systems must never write into one.
func (a *Archive) ClaimArchive(ctx context.Context, o Owner) error {
	a.system = o.SystemIdentifier
	return logarchive.Claim(ctx, a.Store, a.Prefix, o)
}

// ReadOwner reads whose the archive is; NotFound where it has none yet.
func (a *Archive) ReadOwner(ctx context.Context) (Owner, error) {
	return logarchive.ReadOwner(ctx, a.Store, a.Prefix)
}

// buffers hold what is packed.
var buffers = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// StoreFile stores a file under its name, once: one that is there already is
// compared, and never replaced. A partial segment that differs is stored beside
// it.
func (a *Archive) StoreFile(ctx context.Context, path, name string) error {
	key, packed, err := objectKey(name)
	if err != nil {
		return &Refusal{Message: err.Error()}
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if packed {
		if err := checkHeader(f, name, a.system); err != nil {
			return err
		}
	}
	buffer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buffer)
	buffer.Reset()
	if err := a.compressFile(buffer, f, packed); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	err = a.Store.Create(ctx, a.Prefix+key, buffer.Bytes())
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	err = a.compareStored(ctx, path, name)
	if differs := (*Refusal)(nil); errors.As(err, &differs) && partialName.MatchString(name) {
		return a.putBeside(ctx, path, name, buffer.Bytes())
	}
	return err
}

// compressFile compresses one file at a time: the pod's memory is the database's.
func (a *Archive) compressFile(to *bytes.Buffer, from io.Reader, packed bool) (err error) {
	if !packed {
		_, err = to.ReadFrom(from)
		return err
	}
	a.packing.Lock()
	defer a.packing.Unlock()
	if a.packer == nil {
		a.packer, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return err
		}
	}
	a.packer.Reset(to)
	if _, err := io.Copy(a.packer, from); err != nil {
		return err
	}
	return a.packer.Close()
}

// compareStored compares a file with what the archive holds under its name.
func (a *Archive) compareStored(ctx context.Context, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	equal := false
	err = a.readStored(ctx, name, func(stored io.Reader) (err error) {
		equal, err = equalStreams(f, stored)
		return err
	})
	if err == nil && !equal {
		err = &Refusal{Message: fmt.Sprintf("the archive at %s holds another %s than this database has, and it is not replaced: the data was put back to an earlier state, or another database writes there. Name another backup.destination", a.Prefix, name)}
	}
	return err
}

func equalStreams(a, b io.Reader) (bool, error) {
	left, right := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, left)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		m, otherErr := io.ReadFull(b, right)
		if otherErr != nil && !errors.Is(otherErr, io.EOF) && !errors.Is(otherErr, io.ErrUnexpectedEOF) {
			return false, otherErr
		}
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		if err != nil {
			return true, nil
		}
	}
}

// readStored passes on what the archive holds under a name. What cannot be unpacked
// is a Refusal.
func (a *Archive) readStored(ctx context.Context, name string, with func(io.Reader) error) error {
	key, packed, err := objectKey(name)
	if err != nil {
		return &Refusal{Message: err.Error()}
	}
	data, err := a.Store.Get(ctx, a.Prefix+key)
	if err != nil {
		return err
	}
	if !packed {
		return with(bytes.NewReader(data))
	}
	unpacked, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer unpacked.Close()
	return with(refusing{unpacked, a.Prefix + key})
}

// refusing says of a stream that is broken that no other try repairs it.
type refusing struct {
	io.Reader
	key string
}

// Read implements io.Reader.
func (r refusing) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &Refusal{Message: fmt.Sprintf("%s cannot be unpacked: %v", r.key, err)}
	}
	return n, err
}

// HasFile says whether the archive holds a file.
func (a *Archive) HasFile(ctx context.Context, name string) (bool, error) {
	key, _, err := objectKey(name)
	if err != nil {
		return false, &Refusal{Message: err.Error()}
	}
	return a.Store.HasObject(ctx, a.Prefix+key)
}

// ListSegments lists the names of whole segments that the archive holds of a
// timeline, and when each was taken.
func (a *Archive) ListSegments(ctx context.Context, timeline uint32) (map[string]time.Time, error) {
	all, err := a.Store.List(ctx, fmt.Sprintf("%s%08X/", a.Prefix, timeline))
	if err != nil {
		return nil, err
	}
	found := map[string]time.Time{}
	for _, o := range all {
		name := strings.TrimSuffix(o.Key[strings.LastIndex(o.Key, "/")+1:], packedSuffix)
		if IsSegment(name) {
			found[name] = o.Time
		}
	}
	return found, nil
}

// ReadHistory reads the history of a timeline; the first has none.
func (a *Archive) ReadHistory(ctx context.Context, timeline uint32) (h History, err error) {
	if timeline <= 1 {
		return nil, nil
	}
	err = a.readStored(ctx, HistoryName(timeline), func(r io.Reader) error {
		data, err := io.ReadAll(r)
		if err == nil {
			h, err = ParseHistory(data)
		}
		return err
	})
	return h, err
}

// RecordGap records WAL that is missing for good. It may be recorded twice.
func (a *Archive) RecordGap(ctx context.Context, gap agentapi.ArchiveGap) error {
	return logarchive.RecordGap(ctx, a.Store, a.Prefix, gap.From+"-"+gap.To, gap)
}

// ListGaps lists all that is known to be missing, the one that ended last at the end.
func (a *Archive) ListGaps(ctx context.Context) ([]agentapi.ArchiveGap, error) {
	return logarchive.ListGaps(ctx, a.Store, a.Prefix)
}
