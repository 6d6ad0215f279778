package lease

import (
	"slices"
	"testing"
)

// listQuorums are all quorums of the volumes that have the primary p.
func listQuorums(volumes []string) []*Quorum {
	all := []*Quorum{nil}
	for set := range 1 << len(volumes) {
		q := Quorum{Volumes: []string{"p"}}
		for i, v := range volumes {
			if set&(1<<i) != 0 {
				q.Volumes = append(q.Volumes, v)
			}
		}
		for q.Write = 1; q.Write <= len(q.Volumes); q.Write++ {
			all = append(all, &Quorum{Volumes: q.Volumes, Write: q.Write})
		}
	}
	return all
}

// listSubsets are all subsets of that size.
func listSubsets(volumes []string, size int) (subsets [][]string) {
	for set := range 1 << len(volumes) {
		var subset []string
		for i, v := range volumes {
			if set&(1<<i) != 0 {
				subset = append(subset, v)
			}
		}
		if len(subset) == size {
			subsets = append(subsets, subset)
		}
	}
	return subsets
}

// overlaps tries every set of votes against every set that acknowledges.
func overlaps(recorded, effective *Quorum) bool {
	for _, votes := range listSubsets(recorded.Volumes, recorded.CountVotes()) {
		for _, holders := range listSubsets(effective.Volumes, effective.Write) {
			if !slices.Contains(holders, "p") {
				continue
			}
			if !slices.ContainsFunc(votes, func(v string) bool { return slices.Contains(holders, v) }) {
				return false
			}
		}
	}
	return true
}

// Every change between two quorums ends at the wanted one, and no step of it leaves
// a write that is acknowledged by members of whom none has to vote.
func TestRule15QuorumsOverlapAtEveryStep(t *testing.T) {
	quorums := listQuorums([]string{"a", "b", "c"})
	for _, from := range quorums {
		for _, to := range quorums {
			recorded, effective := from, from
			for steps := 0; ; steps++ {
				if recorded != nil && effective != nil && from != nil && to != nil && !overlaps(recorded, effective) {
					t.Fatalf("from %+v to %+v: %+v is recorded while %+v acknowledges", from, to, recorded, effective)
				}
				step := PlanQuorum(recorded, effective, to)
				if step.WriteLease == step.SetServer {
					break
				}
				if steps == 4 {
					t.Fatalf("from %+v to %+v: no end", from, to)
				}
				if step.WriteLease {
					recorded = step.Record
				} else {
					effective = step.Effective
				}
			}
			if !recorded.IsSame(to) || !effective.IsSame(to) {
				t.Errorf("from %+v to %+v: ends with %+v and %+v", from, to, recorded, effective)
			}
		}
	}
}

// A change that is given up half-way keeps all votes that the recorded quorum had.
func TestRule15RedirectedChangeKeepsWhatWasCovered(t *testing.T) {
	quorums := listQuorums([]string{"a", "b", "c"})[1:]
	for _, recorded := range quorums {
		for _, wanted := range quorums {
			step := RedirectQuorum(recorded, wanted)
			if step.SetServer == step.WriteLease || step.SetServer && !overlaps(recorded, wanted) {
				t.Fatalf("from %+v to %+v: %+v", recorded, wanted, step)
			}
			if step.SetServer {
				continue
			}
			for _, effective := range quorums {
				if recorded.Covers(effective) && !overlaps(step.Record, effective) {
					t.Fatalf("from %+v to %+v: %+v does not cover %+v", recorded, wanted, step.Record, effective)
				}
			}
			if next := RedirectQuorum(step.Record, wanted); !next.SetServer {
				t.Fatalf("from %+v to %+v: no end", recorded, wanted)
			}
		}
	}
}

// A guarantee that ends, or begins, does so by an update of the Lease.
func TestRule15RelaxingNeedsTheLeaseFirst(t *testing.T) {
	three, two := &Quorum{[]string{"p", "a", "b"}, 3}, &Quorum{[]string{"p", "a", "b"}, 2}
	for name, c := range map[string]struct {
		from, to *Quorum
		lease    bool
	}{
		"fewer that write":  {three, two, true},
		"more that write":   {two, three, false},
		"synchronous mode":  {nil, two, false},
		"asynchronous mode": {two, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if step := PlanQuorum(c.from, c.from, c.to); step.WriteLease != c.lease || step.SetServer == c.lease {
				t.Errorf("got %+v", step)
			}
		})
	}
}
