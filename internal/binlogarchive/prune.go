package binlogarchive

import (
	"context"
	"slices"

	"github.com/holdfast-db/holdfast/internal/logarchive"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
	"github.com/holdfast-db/holdfast/internal/store"
)

// PruneArchive removes the files below a prefix that no backup needs; see PruneFiles.
func PruneArchive(ctx context.Context, s *store.Store, prefix string, kept []string) (int, error) {
	return (&Archive{Store: s, Prefix: prefix}).PruneFiles(ctx, kept)
}

// PruneFiles removes the files that no backup needs any more to be continued from, and says
// how many those were. Kept are the sets of transactions of the backups that stay; without
// any, nothing is removed.
func (a *Archive) PruneFiles(ctx context.Context, kept []string) (int, error) {
	var sets []mysqlgtid.Set
	for _, text := range kept {
		set, err := mysqlgtid.Parse(text)
		if err != nil {
			return 0, logarchive.Refuse("the transactions of a backup: %v", err)
		}
		sets = append(sets, set)
	}
	if len(sets) == 0 {
		return 0, nil
	}
	found, err := a.listObjects(ctx)
	if err != nil {
		return 0, err
	}
	files, err := a.readIndexes(ctx, found)
	if err != nil {
		return 0, err
	}
	removed := 0
	orphans := found.listOrphans()
	for _, f := range listSurplus(files, sets) {
		// The index first: what is listed is there.
		if err := a.Store.Delete(ctx, a.indexKey(f.Name)); err != nil {
			return removed, err
		}
		orphans = append(orphans, found.parts[f.Name]...)
		removed++
	}
	for _, key := range orphans {
		if err := a.Store.Delete(ctx, key); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// listSurplus lists the files whose transactions every backup that stays has. The ends of the
// archive stay: they say how far it goes. The oldest come first, so that an archive from which only
// some are removed yet has no hole.
func listSurplus(files []File, kept []mysqlgtid.Set) []File {
	ends, sorted := listEnds(files), slices.Clone(files)
	sortFiles(sorted)
	return slices.DeleteFunc(sorted, func(f File) bool {
		isEnd := slices.ContainsFunc(ends, func(end File) bool { return end.Name == f.Name })
		return isEnd || slices.ContainsFunc(kept, func(set mysqlgtid.Set) bool { return !set.Contains(f.Transactions) })
	})
}

// listOrphans lists the parts of files that have no index, of a server that has a later one: a
// server's files are stored one after the other, so none of those is on its way.
func (o objects) listOrphans() (keys []string) {
	for n, parts := range o.parts {
		if _, listed := o.indexes[n]; listed {
			continue
		}
		for other := range o.indexes {
			if other.Server == n.Server && isLater(other.File, n.File) {
				keys = append(keys, parts...)
				break
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// isLater compares the names of two files of a server, which end with their numbers.
func isLater(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }
