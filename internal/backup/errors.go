package backup

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/holdfast-db/holdfast/internal/store"
)

// Permanent marks an error that another try is in vain for.
type Permanent struct{ Err error }

func (p *Permanent) Error() string { return p.Err.Error() }

// Unwrap makes the error itself known.
func (p *Permanent) Unwrap() error { return p.Err }

// InVain says whether another try of what failed with err is in vain.
func InVain(err error) bool {
	var permanent *Permanent
	var stored *store.Error
	return errors.As(err, &permanent) || errors.As(err, &stored) && stored.Permanent
}

// passing hides that an error holds a Permanent: it is not that of all.
type passing struct{ err error }

func (p *passing) Error() string { return p.err.Error() }

// Is makes the error known for what else it is.
func (p *passing) Is(target error) bool { return errors.Is(p.err, target) }

// ExplainRefusal makes the error of a program that read a copy and ended with err.
// That is for good, unless the program was stopped.
func ExplainRefusal(ctx context.Context, program string, err error, says string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err = fmt.Errorf("%s refuses the copy: %w: %s", program, err, strings.TrimSpace(says))
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !exit.Exited() {
		return err
	}
	return &Permanent{err}
}

// errUnwanted is why a backup is not made any more that could be.
var errUnwanted = errors.New("the backup is not needed any more")

// Reasons of errUnwanted.
var (
	errGone      = newUnwanted("the Backup has been deleted")
	errAbandoned = newUnwanted("the Backup was abandoned")
)

func newUnwanted(why string) error { return &Permanent{&reason{why}} }

type reason struct{ why string }

func (r *reason) Error() string { return r.why }

// Is makes every reason errUnwanted.
func (r *reason) Is(target error) bool { return target == errUnwanted }
