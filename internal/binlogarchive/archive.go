// Package binlogarchive is the binlogs of a group of MySQL in a store: what lies where, which
// transactions each file brings, which files lead from a backup on, and what no backup
// needs any more.
//
// A file lies below the UUID of the server that wrote it, in parts, and is described by an
// index, which is written last: without it the file is not there. Nothing is ever replaced.
// Members write the same transactions into files of their own, so after a failover the
// files of two servers overlap. That is harmless: a transaction is applied once.
package binlogarchive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Archive is the binlogs of one group in a store.
type Archive struct {
	Store *store.Store
	// Prefix of all its objects; it ends with a slash.
	Prefix string

	mu sync.Mutex
	// read are the indexes that were read: none ever changes.
	read map[string]File
}

// Open opens the store of an archive, with the credentials that are mounted in a directory.
func Open(ctx context.Context, at agentapi.BackupStore, prefix string, secret store.Secret) (*Archive, error) {
	s, err := logarchive.OpenStore(ctx, at, secret)
	if err != nil {
		return nil, err
	}
	return &Archive{Store: s, Prefix: prefix}, nil
}

// Close lets go of the store.
func (a *Archive) Close() error { return a.Store.Close() }

// ClaimArchive makes the archive the owner's, before anything is stored there. It refuses
// one of another owner.
func (a *Archive) ClaimArchive(ctx context.Context, o logarchive.Owner) error {
	return logarchive.Claim(ctx, a.Store, a.Prefix, o)
}

// ReadOwner reads whose the archive is; NotFound where it has none yet.
func (a *Archive) ReadOwner(ctx context.Context) (logarchive.Owner, error) {
	return logarchive.ReadOwner(ctx, a.Store, a.Prefix)
}

// RecordRefusal records that nothing more is ever stored in the archive; see ReadRefusal.
func (a *Archive) RecordRefusal(ctx context.Context, why string) error {
	return logarchive.RecordRefusal(ctx, a.Store, a.Prefix, why)
}

// ReadRefusal returns the Refusal that is recorded; nil where there is none.
func (a *Archive) ReadRefusal(ctx context.Context) error {
	return logarchive.ReadRefusal(ctx, a.Store, a.Prefix)
}

// ListGaps lists all that is known to be missing, the one that ended last at the end.
func (a *Archive) ListGaps(ctx context.Context) ([]agentapi.ArchiveGap, error) {
	return logarchive.ListGaps(ctx, a.Store, a.Prefix)
}

// RecordGap records transactions that are missing before a file. The first record of a
// file counts.
func (a *Archive) RecordGap(ctx context.Context, before Name, gap agentapi.ArchiveGap) error {
	return logarchive.RecordGap(ctx, a.Store, a.Prefix, gapName(before), gap)
}

func gapName(before Name) string { return strings.ReplaceAll(before.String(), "/", "-") }

// GapRecords are the files before which a gap is recorded.
type GapRecords map[string]bool

// Has says whether a gap is recorded before a file.
func (g GapRecords) Has(before Name) bool { return g[gapName(before)] }

// Add takes in that a gap is recorded before a file.
func (g GapRecords) Add(before Name) { g[gapName(before)] = true }

// ListGapRecords lists before which files a gap is recorded.
func (a *Archive) ListGapRecords(ctx context.Context) (GapRecords, error) {
	names, err := logarchive.ListGapNames(ctx, a.Store, a.Prefix)
	if err != nil {
		return nil, err
	}
	g := GapRecords{}
	for _, name := range names {
		g[name] = true
	}
	return g, nil
}

// Name of a file: of the server that wrote it, and what that calls it.
type Name struct{ Server, File string }

// String is the name below the archive's prefix.
func (n Name) String() string { return n.Server + "/" + n.File }

// File is a file that the archive holds whole.
type File struct {
	Name
	// Before are the transactions that the server had executed when it began the file, and
	// Transactions those in it.
	Before, Transactions mysqlgtid.Set
	// First and Last are when the first and the last of them were committed, in the order of
	// the file, by the clock of the primary that took them. LastGTID is the last one.
	First, Last time.Time
	// Earliest and Latest are the extremes of all of them: a clock may have been set back.
	Earliest, Latest time.Time
	LastGTID         mysqlgtid.GTID
	// Size and SHA256 of the file, which is cut into so many parts.
	Size   int64
	SHA256 string
	Parts  int
	// Stored is when the store took the index, by the clock of the store.
	Stored time.Time
	// Group is the name under which the group numbered transactions when the file was stored.
	// Lineage counts those names from 0: it has another one after a person had it go on without
	// members.
	Group   string
	Lineage int
}

// History is what the server had executed when it ended the file.
func (f File) History() mysqlgtid.Set { return f.Before.Union(f.Transactions) }

// indexFormat is raised when an older program could not read an index.
const indexFormat = 1

// index is a file's description as it is stored: fields are added, and never moved.
type index struct {
	Format       int       `json:"format"`
	Before       string    `json:"before"`
	Transactions string    `json:"transactions"`
	First        time.Time `json:"first"`
	Last         time.Time `json:"last"`
	Earliest     time.Time `json:"earliest,omitzero"`
	Latest       time.Time `json:"latest,omitzero"`
	LastGTID     string    `json:"lastGTID"`
	Size         int64     `json:"size"`
	SHA256       string    `json:"sha256"`
	Parts        int       `json:"parts"`
	Group        string    `json:"group,omitempty"`
	Lineage      int       `json:"lineage"`
}

const (
	indexSuffix = ".json"
	partSuffix  = ".zst"
)

func (a *Archive) indexKey(n Name) string { return a.Prefix + n.String() + indexSuffix }

func (a *Archive) partKey(n Name, part int) string {
	return fmt.Sprintf("%s%s.%05d%s", a.Prefix, n, part, partSuffix)
}

func renderIndex(f File) ([]byte, error) {
	data, err := json.MarshalIndent(index{
		Format: indexFormat, Before: f.Before.String(), Transactions: f.Transactions.String(), First: f.First, Last: f.Last, Earliest: f.Earliest, Latest: f.Latest, LastGTID: f.LastGTID.String(),
		Size: f.Size, SHA256: f.SHA256, Parts: f.Parts, Group: f.Group, Lineage: f.Lineage,
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("render the index: %w", err)
	}
	return append(data, '\n'), nil
}

func parseIndex(n Name, data []byte) (File, error) {
	var i index
	if err := json.Unmarshal(data, &i); err != nil {
		return File{}, err
	}
	if i.Format != indexFormat {
		return File{}, fmt.Errorf("it has the format %d, which this version of Holdfast does not know: use a newer one", i.Format)
	}
	f := File{Name: n, First: i.First, Last: i.Last, Earliest: i.Earliest, Latest: i.Latest, Size: i.Size, SHA256: i.SHA256, Parts: i.Parts, Group: i.Group, Lineage: i.Lineage}
	var err error
	if f.Before, err = mysqlgtid.Parse(i.Before); err != nil {
		return File{}, err
	}
	if f.Transactions, err = mysqlgtid.Parse(i.Transactions); err != nil {
		return File{}, err
	}
	if f.LastGTID, err = mysqlgtid.ParseGTID(i.LastGTID); err != nil {
		return File{}, err
	}
	return f, nil
}

// listings are how often an archive is listed that changes meanwhile.
const listings = 5

// readers are how many indexes are read at once.
const readers = 16

// objects are what lies below the prefix, by what it is.
type objects struct {
	indexes map[Name]store.Object
	// parts of every file, also of one that has no index.
	parts map[Name][]string
}

func (a *Archive) listObjects(ctx context.Context) (objects, error) {
	all, err := a.Store.List(ctx, a.Prefix)
	if err != nil {
		return objects{}, err
	}
	found := objects{map[Name]store.Object{}, map[Name][]string{}}
	for _, o := range all {
		server, rest, below := strings.Cut(strings.TrimPrefix(o.Key, a.Prefix), "/")
		if !below || server+"/" == logarchive.GapPrefix || strings.Contains(rest, "/") {
			continue
		}
		if file, is := strings.CutSuffix(rest, indexSuffix); is {
			found.indexes[Name{server, file}] = o
			continue
		}
		file, is := strings.CutSuffix(rest, partSuffix)
		if at := strings.LastIndexByte(file, '.'); is && at > 0 {
			n := Name{server, file[:at]}
			found.parts[n] = append(found.parts[n], o.Key)
		}
	}
	return found, nil
}

// ListFiles lists all files that the archive holds, in no order. Where some are removed
// meanwhile it begins anew: what is left of a listing may seem to have a hole.
func (a *Archive) ListFiles(ctx context.Context) ([]File, error) {
	for range listings {
		found, err := a.listObjects(ctx)
		if err != nil {
			return nil, err
		}
		files, err := a.readIndexes(ctx, found)
		if err != nil || len(files) == len(found.indexes) {
			return files, err
		}
	}
	return nil, fmt.Errorf("the store lists binlogs at %s that are not there, again and again", a.Prefix)
}

// readIndexes reads the indexes that are still there.
func (a *Archive) readIndexes(ctx context.Context, found objects) ([]File, error) {
	var mu sync.Mutex
	var files []File
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for n, o := range found.indexes {
		group.Go(func() error {
			f, err := a.readIndex(reading, n, o)
			if store.NotFound(err) {
				return nil // removed a moment ago
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			files = append(files, f)
			return nil
		})
	}
	return files, group.Wait()
}

func (a *Archive) readIndex(ctx context.Context, n Name, o store.Object) (File, error) {
	a.mu.Lock()
	f, known := a.read[o.Key]
	a.mu.Unlock()
	if known {
		return f, nil
	}
	data, err := a.Store.Get(ctx, o.Key)
	if err != nil {
		return File{}, err
	}
	if f, err = parseIndex(n, data); err != nil {
		return File{}, logarchive.Refuse("%s does not describe a binlog: %v", o.Key, err)
	}
	f.Stored = o.Time
	a.remember(o.Key, f)
	return f, nil
}

func (a *Archive) remember(key string, f File) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.read == nil {
		a.read = map[string]File{}
	}
	a.read[key] = f
}

// IsRefusal says whether an archive refuses something for good.
func IsRefusal(err error) bool {
	var refused *logarchive.Refusal
	return errors.As(err, &refused)
}
