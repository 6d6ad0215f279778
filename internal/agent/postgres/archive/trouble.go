package archive

import (
	"errors"
	"time"

	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
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
	class, permanent := classifyError(err)
	if t.err == nil {
		t.since = now
	}
	if t.err == nil || t.class != class {
		t.err, t.class, t.permanent = err, class, permanent
	}
	return t
}

func classifyError(err error) (class string, permanent bool) {
	var refused *wal.Refusal
	var known *store.Error
	switch {
	case errors.As(err, &refused):
		return refused.Message, true
	case errors.As(err, &known):
		return known.Field + "|" + known.Remedy, known.Permanent
	default:
		return "", false
	}
}
