package apply

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is what the applier knows of objects from its own writes. It is lost
// with the process and rebuilt by the first pass after it.
type memory struct {
	mu     sync.Mutex
	owners map[types.UID]*ownerMemory
}

// ownerMemory is one cluster's part; its lock is held for a whole pass.
type ownerMemory struct {
	mu      sync.Mutex
	objects map[ObjectID]*record
	// pruned are objects that this process deleted; the cache may show them for a while.
	pruned map[types.UID]bool
}

// record is what is remembered of one object.
type record struct {
	uid types.UID
	// resourceVersion that the API server answered to our last write.
	resourceVersion string
	// generation that it had then, or when it was last compared.
	generation int64
	// written is when that was, and made when we last made the object.
	written, made time.Time
	// applied is the hash of what was applied last.
	applied string
	// shownByCache says that the cache has shown the object of this uid.
	shownByCache bool
	// gone says that the object vanished, or another one took its name, and
	// that ours is not back yet.
	gone bool
	// judged is the state that the last check found as it should be, or whose
	// differences are in standing.
	judged judged
	// standing are differences that were reported and stay.
	standing []Drift
	// tolerated are the paths that no manager owns and that were added to ours.
	tolerated []string
	// backstop is when to apply although nothing seems to have changed.
	backstop time.Time
	contest  *contest
	reverts  reverts
}

// judged identifies a state of an object.
type judged struct {
	rendering, rules, content, own sum
	desired, resourceVersion       string
}

func (m *memory) ofOwner(owner types.UID) *ownerMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owners == nil {
		m.owners = map[types.UID]*ownerMemory{}
	}
	o, found := m.owners[owner]
	if !found {
		o = &ownerMemory{objects: map[ObjectID]*record{}}
		m.owners[owner] = o
	}
	return o
}

// computeHash sets the hash of a desired object. With the rendering of the last check it is known;
// of another one it is computed.
func (o *ownerMemory) computeHash(d *desired) error {
	if r := o.objects[d.id]; r != nil && r.judged.rendering == d.rendering {
		d.hash = r.judged.desired
		return nil
	}
	return d.decodeRendering()
}

func (m *memory) forgetOwner(owner types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owners, owner)
}

// contest is an object that differs again after every apply.
type contest struct {
	since, next time.Time
	attempts    int
	paths       []string
	manager     string
	// admission says that the API server's answer differs from what was sent.
	admission bool
}

// reverts counts drift that comes back right after it was put back.
type reverts struct {
	count int
	last  time.Time
}

const (
	backstopInterval = 24 * time.Hour
	firstBackoff     = 5 * time.Second
	longestBackoff   = 5 * time.Minute
	// freeReverts is how often in a row drift of an object is put back at once,
	// before the manager that makes it is taken for a contender.
	freeReverts = 3
	// quietPeriod without drift makes the next one a first one.
	quietPeriod = 2 * time.Minute
	// remakePeriod is how long an object that we made stays missing at most, and
	// at least where it is deleted again and again.
	remakePeriod = time.Second
	// unseenPeriod is how long the cache may take to show an object before it
	// is looked for.
	unseenPeriod = time.Second
)

// nextBackstop is a day from now, up to a tenth earlier or later, so that clusters do
// not all come at once.
func nextBackstop(now time.Time) time.Time {
	spread := backstopInterval / 10
	return now.Add(backstopInterval - spread + rand.N(2*spread)) //nolint:gosec // no secret
}

// spreadBackstop is at any time of the next day.
func spreadBackstop(now time.Time) time.Time {
	return now.Add(rand.N(backstopInterval)) //nolint:gosec // no secret
}

// backoffAfter doubles from five seconds to five minutes.
func backoffAfter(attempts int) time.Duration {
	d := firstBackoff
	for range attempts - 1 {
		if d *= 2; d >= longestBackoff {
			return longestBackoff
		}
	}
	return d
}

// countRevert counts one more revert, and says whether it is one too many.
func (r *record) countRevert(now time.Time) bool {
	quiet := quietPeriod
	if r.contest != nil {
		// Waiting in backoff is not being quiet.
		quiet = max(quiet, 2*backoffAfter(r.contest.attempts))
	}
	if now.Sub(r.reverts.last) > quiet {
		r.reverts.count = 0
	}
	r.reverts.count++
	r.reverts.last = now
	return r.reverts.count > freeReverts
}

// addAttempt starts a contest or takes it one attempt further. It says whether
// the contest is news.
func (r *record) addAttempt(now time.Time, paths []string, manager string) bool {
	news := r.contest == nil
	if news {
		r.contest = &contest{since: now}
	}
	r.contest.attempts++
	r.contest.paths, r.contest.manager = paths, manager
	r.contest.next = now.Add(backoffAfter(r.contest.attempts))
	return news
}

// isWaiting says whether the object is in backoff.
func (r *record) isWaiting(now time.Time) bool {
	return r.contest != nil && now.Before(r.contest.next)
}
