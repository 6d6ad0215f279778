package archive

import (
	"context"
	"sync"

	"github.com/holdfast-db/holdfast/internal/wal"
)

// PutFile stores a file in an archive.
type PutFile func(ctx context.Context, archive *wal.Archive, name string) error

// storeQueue holds the files that are on their way to an archive: what the database
// asks for, and what it will ask for next.
type storeQueue struct {
	// atOnce is how many are stored at once.
	atOnce int

	mu sync.Mutex
	// life is that of files that are stored ahead.
	life context.Context
	put  PutFile
	jobs map[string]*job
}

// job is a file that is on its way to an archive.
type job struct {
	archive *wal.Archive
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

func newStoreQueue(atOnce int, put PutFile) *storeQueue {
	return &storeQueue{atOnce: atOnce, life: context.Background(), put: put, jobs: map[string]*job{}}
}

// storedAtOnce follows the memory that the pod may use: each file is held in it.
func storedAtOnce(limit int64) int {
	if limit <= 0 {
		return wal.StoredAtOnce
	}
	return int(min(max(limit/(256<<20), 1), wal.StoredAtOnce))
}

// wrapPut has another function store files, which may call the one before.
func (q *storeQueue) wrapPut(wrap func(before PutFile) PutFile) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put = wrap(q.put)
}

// limitLife ends what is stored ahead with ctx.
func (q *storeQueue) limitLife(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.life = ctx
}

// storeFile stores a file that is in no job.
func (q *storeQueue) storeFile(ctx context.Context, archive *wal.Archive, name string) error {
	q.mu.Lock()
	put := q.put
	q.mu.Unlock()
	return put(ctx, archive, name)
}

// startJob has a file stored, unless it is on its way there already.
func (q *storeQueue) startJob(archive *wal.Archive, name string) *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j := q.jobs[name]; j != nil && j.archive == archive {
		return j
	}
	ctx, cancel := context.WithCancel(q.life)
	j := &job{archive: archive, cancel: cancel, done: make(chan struct{})}
	q.jobs[name] = j
	put := q.put
	go func() {
		defer cancel()
		err := put(ctx, archive, name)
		q.mu.Lock()
		if j.err = err; err != nil && q.jobs[name] == j {
			delete(q.jobs, name)
		}
		q.mu.Unlock()
		close(j.done)
	}()
	return j
}

// startAhead begins those of a list that are not begun, after a file, as far as more
// are stored at once.
func (q *storeQueue) startAhead(archive *wal.Archive, after string, names []string) {
	left := q.atOnce - 1
	for _, next := range names {
		if left == 0 {
			return
		}
		if next != after {
			q.startJob(archive, next)
			left--
		}
	}
}

// forgetJob forgets a file that is stored.
func (q *storeQueue) forgetJob(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.jobs, name)
}

// cancelJob gives a file up.
func (q *storeQueue) cancelJob(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j := q.jobs[name]; j != nil {
		j.cancel()
		delete(q.jobs, name)
	}
}

// cancelAll gives all of them up.
func (q *storeQueue) cancelAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.jobs {
		j.cancel()
	}
	q.jobs = map[string]*job{}
}

// isIdle says whether no file is on its way.
func (q *storeQueue) isIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs) == 0
}
