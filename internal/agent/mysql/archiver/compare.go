package archiver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/binlog"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// lastTransactions are those that the files of the archive end with, and when each was committed.
type lastTransactions map[mysqlgtid.GTID]time.Time

func listLast(files []binlogarchive.File) lastTransactions {
	all := lastTransactions{}
	for _, f := range files {
		all[f.LastGTID] = f.Last
	}
	return all
}

// otherTransaction is the proof that two transactions have the same number.
type otherTransaction struct{ error }

func (o *otherTransaction) Unwrap() error { return o.error }

// compare compares a transaction of the server with that of the archive, and says whether the
// archive has it. Servers never number two in the same way, unless data was put back.
func (l lastTransactions) compare(t binlog.Transaction) (has bool, err error) {
	at, is := l[t.GTID]
	if is && !at.Equal(t.Committed) {
		return is, &otherTransaction{logarchive.Refuse("the archive holds another transaction %s than this database has: the data was put back to an earlier state. Name another backup.destination", t.GTID)}
	}
	return is, nil
}

// localFiles are the server's binlogs in their order, with the one that it writes.
type localFiles struct {
	log   *slog.Logger
	dir   string
	files []closedFile
}

// compare compares the server's binlogs with what the archive ends with, in files that do not
// wait as well. It begins with the newest: histories with the same transaction are the
// same before it.
func (l localFiles) compare(files []binlogarchive.File) error {
	archived := listLast(files)
	for _, f := range slices.Backward(l.files) {
		has := f.end.Subtract(f.begin)
		if !slices.ContainsFunc(files, func(other binlogarchive.File) bool { return has.Has(other.LastGTID) }) {
			continue
		}
		found, err := archived.compareFile(filepath.Join(l.dir, f.name))
		if other := (*otherTransaction)(nil); err != nil && !errors.As(err, &other) {
			l.log.Warn("a binlog cannot be compared with the archive", "file", f.name, "error", err.Error())
		} else if err != nil {
			return err
		}
		if found {
			return nil
		}
	}
	return nil
}

// compareFile says whether the archive has a transaction of the file.
func (l lastTransactions) compareFile(path string) (found bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	_, err = binlog.Scan(file, func(t binlog.Transaction) error {
		has, err := l.compare(t)
		found = found || has
		return err
	})
	if errors.Is(err, binlog.ErrTruncated) { // it is being written
		err = nil
	}
	return found, err
}

// recordRefusal records in the archive that numbers were used again: the binlog that proves it
// may be purged later. It returns the error.
func recordRefusal(ctx context.Context, archive *binlogarchive.Archive, err error) error {
	if other := (*otherTransaction)(nil); errors.As(err, &other) {
		if failed := archive.RecordRefusal(ctx, other.Error()); failed != nil {
			return failed
		}
	}
	return err
}
