package archiver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/internal/binlog"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// closedFile is a binlog that the server has ended.
type closedFile struct {
	name string
	// begin and end are the transactions that the server had executed before and after it.
	begin, end mysqlgtid.Set
	size       int64
	// written is when the last byte was.
	written time.Time
	// next is the file after it.
	next string
}

// isEmpty says whether the file has no transaction.
func (f closedFile) isEmpty() bool { return f.begin.Contains(f.end) }

// binlogs are the server's, as they lie in its data directory.
type binlogs struct {
	dir   string
	heads map[string]mysqlgtid.Set
	// cloned is what the server had executed before its first binlog; nil before it is known.
	// It is in none of them, and in no list of one.
	cloned *mysqlgtid.Set
	// begun is what the server had executed before the file that it writes.
	begun mysqlgtid.Set
	// newest is the file that the server writes.
	newest string
}

var errNoBinlog = errors.New("the server has no binlog")

// listClosed lists the files that the server has ended, the oldest first. Executed was asked for
// before.
func (b *binlogs) listClosed(ctx context.Context, server Server, executed mysqlgtid.Set) ([]closedFile, error) {
	names, err := server.ListBinlogs(ctx)
	if err != nil {
		return nil, err
	}
	heads := map[string]mysqlgtid.Set{}
	for _, name := range names {
		if heads[name], err = b.readHead(name); err != nil {
			return nil, err
		}
	}
	b.heads = heads
	if len(names) == 0 {
		return nil, errNoBinlog
	}
	cloned, err := b.findCloned(names[len(names)-1], executed)
	if err != nil {
		return nil, err
	}
	b.newest = names[len(names)-1]
	b.begun = heads[b.newest].Union(cloned)
	files := make([]closedFile, len(names)-1)
	for i := range files {
		info, err := os.Stat(filepath.Join(b.dir, names[i]))
		if err != nil {
			return nil, fmt.Errorf("look at binlog %s: %w", names[i], err)
		}
		files[i] = closedFile{
			name: names[i], begin: heads[names[i]].Union(cloned), end: heads[names[i+1]].Union(cloned),
			size: info.Size(), written: info.ModTime(), next: names[i+1],
		}
	}
	return files, nil
}

// readHead reads what came before a file, once.
func (b *binlogs) readHead(name string) (mysqlgtid.Set, error) {
	if known, ok := b.heads[name]; ok {
		return known, nil
	}
	file, err := os.Open(filepath.Join(b.dir, name))
	if err != nil {
		return mysqlgtid.Set{}, fmt.Errorf("open binlog %s: %w", name, err)
	}
	defer file.Close()
	head, err := binlog.ReadHead(file)
	if err != nil {
		return mysqlgtid.Set{}, fmt.Errorf("read binlog %s: %w", name, err)
	}
	return head.Previous, nil
}

// findCloned reads the newest file: what the server has executed and is neither in that nor
// in the list of what came before. It does not change while the server runs.
func (b *binlogs) findCloned(newest string, executed mysqlgtid.Set) (mysqlgtid.Set, error) {
	if b.cloned != nil {
		return *b.cloned, nil
	}
	last, err := b.scan(newest)
	if err != nil && !errors.Is(err, binlog.ErrTruncated) { // it is being written
		return mysqlgtid.Set{}, fmt.Errorf("read binlog %s: %w", newest, err)
	}
	b.cloned = new(executed.Subtract(last.Previous.Union(last.Transactions)))
	return *b.cloned, nil
}

func (b *binlogs) scan(name string) (binlog.Summary, error) {
	file, err := os.Open(filepath.Join(b.dir, name))
	if err != nil {
		return binlog.Summary{}, fmt.Errorf("open binlog %s: %w", name, err)
	}
	defer file.Close()
	return binlog.Scan(file, func(binlog.Transaction) error { return nil })
}
