package binlogarchive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/store"
)

// partSize is how much of a file is in one object, before it is compressed. Each is
// compressed by itself, so that one attempt may go on where another one ended.
const partSize = 8 << 20

// StoreFile stores a file, once: a part that is there already is compared, and never
// replaced. The index comes last. It returns the file as it is described.
func (a *Archive) StoreFile(ctx context.Context, from io.Reader, f File) (File, error) {
	packer, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return f, err
	}
	defer packer.Close() //nolint:errcheck // it has no stream
	sum, raw := sha256.New(), make([]byte, partSize)
	from = io.LimitReader(from, f.Size)
	f.Parts = 0
	for left := f.Size; left > 0; f.Parts++ {
		n, err := io.ReadFull(from, raw[:min(left, partSize)])
		if err != nil {
			return f, fmt.Errorf("read %s: %w", f.Name, err)
		}
		left -= int64(n)
		_, _ = sum.Write(raw[:n])
		key := a.partKey(f.Name, f.Parts)
		err = a.Store.Create(ctx, key, packer.EncodeAll(raw[:n], nil))
		if errors.Is(err, store.ErrExists) {
			err = a.comparePart(ctx, key, raw[:n])
		}
		if err != nil {
			return f, err
		}
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return f, a.createIndex(ctx, f)
}

// createIndex writes the index, or compares the one that is there: what it says of the server
// may differ, such as what that had executed before by a clone.
func (a *Archive) createIndex(ctx context.Context, f File) error {
	data, err := renderIndex(f)
	if err != nil {
		return err
	}
	err = a.Store.Create(ctx, a.indexKey(f.Name), data)
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	stored, err := a.Store.Get(ctx, a.indexKey(f.Name))
	if err != nil {
		return err
	}
	if found, err := parseIndex(f.Name, stored); err != nil || found.SHA256 != f.SHA256 || found.Size != f.Size {
		return a.refuseOther(f.String())
	}
	return nil
}

func (a *Archive) refuseOther(name string) error {
	return logarchive.Refuse("the archive at %s holds another %s than this database has, and it is not replaced: the data was put back to an earlier state, or another database writes there. Name another backup.destination", a.Prefix, name)
}

func (a *Archive) comparePart(ctx context.Context, key string, raw []byte) error {
	stored, err := a.readPart(ctx, key)
	if err == nil && !bytes.Equal(stored, raw) {
		err = a.refuseOther(key[len(a.Prefix):])
	}
	return err
}

func (a *Archive) readPart(ctx context.Context, key string) ([]byte, error) {
	packed, err := a.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	unpacker, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(4*partSize))
	if err != nil {
		return nil, err
	}
	defer unpacker.Close()
	raw, err := unpacker.DecodeAll(packed, nil)
	if err != nil {
		return nil, logarchive.Refuse("%s cannot be unpacked: %v", key, err)
	}
	return raw, nil
}

// ReadFile writes a file that the archive holds. What is not as it was stored is a Refusal,
// as is a part that is missing.
func (a *Archive) ReadFile(ctx context.Context, f File, to io.Writer) error {
	sum, size := sha256.New(), int64(0)
	for part := range f.Parts {
		key := a.partKey(f.Name, part)
		raw, err := a.readPart(ctx, key)
		if store.NotFound(err) {
			return logarchive.Refuse("%s is missing from the archive, which lists it", key)
		}
		if err != nil {
			return err
		}
		_, _ = sum.Write(raw)
		size += int64(len(raw))
		if _, err := to.Write(raw); err != nil {
			return fmt.Errorf("write %s: %w", f.Name, err)
		}
	}
	if size != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		return logarchive.Refuse("what the archive at %s holds of %s is not what was stored", a.Prefix, f.Name)
	}
	return nil
}
