package archive

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/logarchive"
)

// trouble is why nothing is stored. The zero value is none.
type trouble struct {
	err       error
	class     string
	permanent bool
	since     time.Duration
}

// recordError takes in another failure. What is said stays as it was first while the
// reason is the same: a store gives each of its errors a number.
func (t trouble) recordError(err error, now time.Duration) trouble {
	class, permanent := logarchive.ClassifyError(err)
	if t.err == nil {
		t.since = now
	}
	if t.err == nil || t.class != class {
		t.err, t.class, t.permanent = err, class, permanent
	}
	return t
}
