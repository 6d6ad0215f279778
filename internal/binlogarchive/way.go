package binlogarchive

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Way is the files that lead from a set of transactions on.
type Way struct {
	// Files in the order in which they are applied: each begins with what those before have
	// brought, and brings more.
	Files []File
	// End is what is there behind the last of them.
	End mysqlgtid.Set
	// Line is the history that the archive's group went on with, and Left says that the way
	// begins on another one: with transactions that the group lost.
	Line mysqlgtid.Set
	Left bool
	// Gap is why the way ends before the archive does; nil where it does not.
	Gap *Gap
	// Beside are files with transactions that the group lost later, when a person had it go on
	// without members. They are not applied.
	Beside []File
}

// Gap is transactions that the archive lacks.
type Gap struct {
	// Missing transactions, before the file Next.
	Missing mysqlgtid.Set
	Next    File
}

// FindWay finds the files that lead from a set of transactions, such as those of a backup, to
// the end of the archive, or to its first gap.
func FindWay(files []File, from mysqlgtid.Set) Way {
	line := findLine(files)
	w := Way{End: from, Line: line, Left: !line.Contains(from) && !from.Contains(line)}
	var on []File
	for _, f := range files {
		if line.Contains(f.Transactions) {
			on = append(on, f)
		} else {
			w.Beside = append(w.Beside, f)
		}
	}
	sortFiles(on)
	end, left := followFiles(on, w.End, func(f File) { w.Files = append(w.Files, f) })
	w.End = end
	if len(left) > 0 {
		w.Gap = &Gap{left[0].Before.Subtract(end), left[0]}
	}
	return w
}

// followFiles takes files that go on from a set of transactions, in their order, until none does
// that brings more. One that fits may stand behind one that does not: servers commit in
// orders of their own. It returns the set with what they bring, and the files that
// bring more and do not fit.
func followFiles(files []File, from mysqlgtid.Set, take func(File)) (end mysqlgtid.Set, left []File) {
	end, left = from, files
	for took := true; took; {
		var unfit []File
		took = false
		for _, f := range left {
			switch {
			case end.Contains(f.Transactions):
			case end.Contains(f.Before):
				take(f)
				end, took = end.Union(f.Transactions), true
			default:
				unfit = append(unfit, f)
			}
		}
		left = unfit
	}
	return end, left
}

// findLine is the history that the group went on with: that of all files of the newest lineage. A
// group that lost its majority has an older one. When the store took a file says nothing: a
// bucket may have been copied.
func findLine(files []File) (line mysqlgtid.Set) {
	newest := 0
	for _, f := range files {
		newest = max(newest, f.Lineage)
	}
	for _, f := range files {
		if f.Lineage == newest {
			line = line.Union(f.History())
		}
	}
	return line
}

// FindLineage is the lineage of a group by its name: that of its files, or the next one. Where the
// name is known and has no file any more, others have gone on under a newer name: then it
// is the oldest.
func FindLineage(files []File, group string) int {
	next, known := 0, false
	for _, f := range files {
		if f.Group == group {
			return f.Lineage
		}
		next = max(next, f.Lineage+1)
		known = known || !f.History().Only(group).IsEmpty()
	}
	if known {
		return 0
	}
	return next
}

// listEnds are the files behind which no other one goes on.
func listEnds(files []File) []File {
	sorted := slices.Clone(files)
	sortFiles(sorted)
	slices.Reverse(sorted)
	slices.SortStableFunc(sorted, func(a, b File) int { return cmp.Compare(b.History().Count(), a.History().Count()) })
	var ends []File
	for _, f := range sorted {
		history := f.History()
		if !slices.ContainsFunc(ends, func(end File) bool { return end.History().Contains(history) }) {
			ends = append(ends, f)
		}
	}
	return ends
}

// sortFiles sorts files so that none comes before those that it follows.
func sortFiles(files []File) {
	slices.SortFunc(files, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.Before.Count(), b.Before.Count()), -cmp.Compare(a.Transactions.Count(), b.Transactions.Count()), strings.Compare(a.String(), b.String()))
	})
}

// FindReach is how far the archive leads without a gap that is not recorded: all that it holds up
// to there, what came before that, and what is recorded as missing. What a server had
// executed before a file that is stored next must be a part of that. Files with
// transactions that the server has not do not count: they are of a group that lost its
// majority. The gap is the one that is not recorded; nil for none.
func FindReach(files []File, executed mysqlgtid.Set, recorded GapRecords) (reach mysqlgtid.Set, gap *Gap) {
	left := slices.DeleteFunc(slices.Clone(files), func(f File) bool { return !executed.Contains(f.History()) })
	sortFiles(left)
	for len(left) > 0 {
		if !reach.Contains(left[0].Before) {
			if !reach.IsEmpty() && !recorded.Has(left[0].Name) {
				return reach, &Gap{left[0].Before.Subtract(reach), left[0]}
			}
			reach = reach.Union(left[0].Before)
		}
		reach, left = followFiles(left, reach, func(File) {})
	}
	return reach, nil
}

// FindHeld is what the archive holds of that a server has executed, too. See FindReach.
func FindHeld(files []File, executed mysqlgtid.Set) (held mysqlgtid.Set) {
	for _, f := range files {
		if executed.Contains(f.History()) {
			held = held.Union(f.Transactions)
		}
	}
	return held
}
