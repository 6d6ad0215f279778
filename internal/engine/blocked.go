package engine

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// FindBlocked finds in an error what only a person can fix; nil for none.
func FindBlocked(err error) *Blocked {
	var b *Blocked
	var conflict *apply.ConflictError
	switch {
	case errors.As(err, &b):
		return b
	case errors.As(err, &conflict):
		return &Blocked{Reason: v1alpha1.ReasonNameConflict, Message: conflict.Error() +
			": it is left alone, although the cluster's metadata.name asks for that name; rename or delete it, or give the cluster another name"}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return &Blocked{Reason: v1alpha1.ReasonInvalidObject, Message: DescribeInvalid(err)}
	case apierrors.IsForbidden(err):
		return &Blocked{Reason: v1alpha1.ReasonForbidden, Message: "the API server forbids " + describeForbiddenObject(err) + ": " + DescribeForbidden(err.Error())}
	}
	return nil
}

// FindBlockedReason finds why only a person can go on; empty for an error that is none of
// those.
func FindBlockedReason(err error) string {
	if b := FindBlocked(err); b != nil {
		return b.Reason
	}
	return ""
}

// describeForbiddenObject names what may not be written.
func describeForbiddenObject(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return status.Status().Details.Kind + " " + status.Status().Details.Name
	}
	return "an object"
}

// SplitErrors lists what errors.Join put together.
func SplitErrors(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
