// Package eventseries knows how events are distinguished: those of one cause are one
// series, whatever figures their texts have, and those of another cause are events
// of their own.
package eventseries

import (
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MaxLength of a text that the API server accepts, in bytes.
const MaxLength = 1024

// RemoveVersion makes an object for events to be about: with a resourceVersion, no
// two of them would ever be of one series.
func RemoveVersion(obj client.Object) client.Object {
	regarding := obj.DeepCopyObject().(client.Object)
	regarding.SetResourceVersion("")
	return regarding
}

// MakeReference makes what keeps events of one reason apart.
func MakeReference(obj client.Object, path string) corev1.ObjectReference {
	gvk := obj.GetObjectKind().GroupVersionKind()
	return corev1.ObjectReference{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), FieldPath: path,
	}
}

// HashCause names what a text says apart from its figures, such as sizes, times and
// positions, which differ each time that it is said.
func HashCause(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if bare := strings.TrimLeft(word, "(\"'"); bare != "" && bare[0] >= '0' && bare[0] <= '9' {
			words[i] = "#"
		}
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(strings.Join(words, " ")))
	return fmt.Sprintf("cause-%08x", sum.Sum32())
}

// HasSameCause says whether a condition says what it said before, but for figures.
func HasSameCause(before, after *metav1.Condition) bool {
	return before != nil && before.Reason == after.Reason && HashCause(before.Message) == HashCause(after.Message)
}

// TruncateText shortens what is too long for where it is written.
func TruncateText(text string, most int) string {
	const dots = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}
