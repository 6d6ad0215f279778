package archiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	// ends are of files before one that cannot be read, and skipped says why those cannot.
	ends    map[string]mysqlgtid.Set
	skipped error
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
	if len(names) == 0 {
		return nil, errNoBinlog
	}
	b.newest = names[len(names)-1]
	heads, skipped := map[string]mysqlgtid.Set{}, []error(nil)
	for _, name := range names {
		head, err := b.readHead(name)
		switch {
		case err == nil:
			heads[name] = head
		case name == b.newest || !isUnreadable(err):
			return nil, err
		default:
			skipped = append(skipped, err)
		}
	}
	b.heads = heads
	cloned, err := b.findCloned(b.newest, executed)
	if err != nil {
		return nil, err
	}
	b.begun = heads[b.newest].Union(cloned)
	files := make([]closedFile, 0, len(names))
	for i, name := range names[:len(names)-1] {
		begin, ok := heads[name]
		if !ok {
			continue
		}
		info, err := os.Stat(filepath.Join(b.dir, name))
		var end mysqlgtid.Set
		if err == nil {
			end, err = b.findEnd(name, begin, names[i+1])
		}
		switch {
		case err == nil:
			files = append(files, closedFile{
				name: name, begin: begin.Union(cloned), end: end.Union(cloned), size: info.Size(), written: info.ModTime(), next: names[i+1],
			})
		case !isUnreadable(err):
			return nil, fmt.Errorf("look at binlog %s: %w", name, err)
		default:
			skipped = append(skipped, err)
		}
	}
	b.skipped = errors.Join(skipped...)
	return files, nil
}

// isUnreadable says whether a binlog is not there, or is none: no other try reads it.
func isUnreadable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, binlog.ErrTruncated) || errors.As(err, new(*binlog.Damage))
}

// findEnd is what the server had executed after a file: what it says at the head of the next one.
// If that cannot be read, the file is.
func (b *binlogs) findEnd(name string, begin mysqlgtid.Set, next string) (mysqlgtid.Set, error) {
	if end, ok := b.heads[next]; ok {
		return end, nil
	}
	if end, ok := b.ends[name]; ok {
		return end, nil
	}
	has, err := b.scan(name)
	if err != nil {
		return mysqlgtid.Set{}, err
	}
	if b.ends == nil {
		b.ends = map[string]mysqlgtid.Set{}
	}
	b.ends[name] = begin.Union(has.Transactions)
	return b.ends[name], nil
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
