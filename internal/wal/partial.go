package wal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"

	"github.com/holdfast-db/holdfast/internal/store"
)

// A partial segment is what a timeline had of its last segment when it was left.
// Each promotion from one segment leaves another one, and all that a recovery
// needs of it is in the whole segment of the next timeline: PostgreSQL never asks
// for one, and a person may. So one that differs from what the archive holds under
// its name neither replaces that nor keeps later WAL waiting.

// putBeside stores a partial segment under a name of its content. It is stored
// once, however often it is put.
func (a *Archive) putBeside(ctx context.Context, path, name string, data []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	beside := name + "." + hex.EncodeToString(sum.Sum(nil))[:16]
	key, _, err := objectKey(beside)
	if err != nil {
		return &Refusal{Message: err.Error()}
	}
	err = a.Store.Create(ctx, a.Prefix+key, data)
	if errors.Is(err, store.ErrExists) {
		return a.compareStored(ctx, path, beside)
	}
	if err == nil && a.Log != nil {
		a.Log.Warn("the archive holds another partial segment of this name, which stays: this one is stored beside it", "file", name, "object", a.Prefix+key)
	}
	return err
}
