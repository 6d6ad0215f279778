package etcd

import (
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// revisionBytes is the length of a revision as etcd stores it: two numbers with
// a byte between them, of which the first counts.
const revisionBytes = 17

// revisionOf a snapshot: what etcd begins with when it starts on it. That is
// the newest revision of a key, as etcdutl says it, or the one that was
// compacted last, where all later ones are gone: a cluster with every key deleted
// has good data, too. Nothing was ever written at 1.
func revisionOf(file string) (revision int64, err error) {
	db, err := bbolt.Open(file, 0o400, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return 0, fmt.Errorf("open the snapshot: %w", err)
	}
	defer db.Close() //nolint:errcheck // it was only read
	revision = 1
	see := func(stored []byte) {
		if len(stored) >= revisionBytes {
			revision = max(revision, int64(binary.BigEndian.Uint64(stored))) //nolint:gosec // etcd's own are positive
		}
	}
	err = db.View(func(tx *bbolt.Tx) error {
		keys, meta := tx.Bucket([]byte("key")), tx.Bucket([]byte("meta"))
		if keys == nil || meta == nil {
			return fmt.Errorf("it has not what etcd 3 keeps")
		}
		newest, _ := keys.Cursor().Last()
		for _, stored := range [][]byte{newest, meta.Get([]byte("scheduledCompactRev")), meta.Get([]byte("finishedCompactRev"))} {
			see(stored)
		}
		return nil
	})
	return revision, err
}
