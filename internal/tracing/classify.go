package tracing

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// class says what helps against an error.
type class string

const (
	// transient: the next pass may succeed.
	transient class = "transient"
	// permanent: the API server or the operator itself answers the same until one of them is
	// another.
	permanent class = "permanent"
	// blocked: a person has to change something.
	blocked class = "blocked"
)

// failure is an error without its message.
type failure struct {
	class class
	// reason is the operator's own, or that of the API server; empty for none.
	reason string
}

// classify says of an error what helps, and why it is. Of several, one that the next pass
// may overcome counts, since the pass is repeated for that one.
func (t *Tracer) classify(err error) failure {
	var found failure
	for _, e := range listErrors(err) {
		if f := t.classifyOne(e); found.class == "" || f.class == transient || f.class == permanent && found.class == blocked {
			found = f
		}
		if found.class == transient {
			break
		}
	}
	return found
}

func (t *Tracer) classifyOne(err error) failure {
	if reason := t.findBlocked(err); reason != "" {
		return failure{blocked, reason}
	}
	f := failure{transient, string(apierrors.ReasonForError(err))}
	var status apierrors.APIStatus
	if errors.Is(err, reconcile.TerminalError(nil)) || errors.As(err, &status) && isFinal(status.Status().Code) {
		f.class = permanent
	}
	return f
}

// isFinal says whether the API server answers the same again.
func isFinal(code int32) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return code/100 == 4
}

// listErrors lists what errors.Join put together, also below other errors.
func listErrors(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		joined, is := e.(interface{ Unwrap() []error })
		if !is {
			continue
		}
		var all []error
		for _, part := range joined.Unwrap() {
			all = append(all, listErrors(part)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
