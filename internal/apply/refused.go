package apply

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// differing finds the fields in the difference that the API server prints below a
// refusal, in the terms of its own Go types.
var differing = regexp.MustCompile(`(?m)^[-+]\s+([A-Z]\w*):`)

// inWords is a refusal of the API server without the difference of Go values that
// it prints where a field cannot change: it names those fields instead. Other
// errors are as they were.
func inWords(err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Details == nil || !strings.Contains(status.ErrStatus.Message, "\n") {
		return err
	}
	said := status.ErrStatus.DeepCopy()
	var causes []string
	for i := range said.Details.Causes {
		cause := &said.Details.Causes[i]
		cause.Message = causeInWords(cause)
		causes = append(causes, cause.Field+": "+cause.Message)
	}
	if len(causes) == 0 {
		return err
	}
	said.Message = fmt.Sprintf("%s %q is invalid: %s", said.Details.Kind, said.Details.Name, strings.Join(causes, "; "))
	return &apierrors.StatusError{ErrStatus: *said}
}

func causeInWords(cause *metav1.StatusCause) string {
	first, difference, cut := strings.Cut(cause.Message, "\n")
	if !cut {
		return first
	}
	var fields []string
	for _, match := range differing.FindAllStringSubmatch(difference, -1) {
		name := cause.Field + "." + strings.ToLower(match[1][:1]) + match[1][1:]
		if !slices.Contains(fields, name) {
			fields = append(fields, name)
		}
	}
	if len(fields) == 0 {
		return strings.TrimSpace(first)
	}
	return fmt.Sprintf("%s cannot change on an object that exists: set the field of the cluster's spec that it follows from back to what it was (%s)",
		strings.Join(fields, ", "), strings.TrimSpace(first))
}
