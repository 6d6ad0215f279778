//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// mistake is something that the API server accepts, and the running operator
// must report.
type mistake struct {
	name string
	// only the kind that it can be made with; nil for every kind.
	only *kind
	// there is made before the cluster.
	there func(w *world)
	// declare it with the new cluster, or change it once the cluster is Ready.
	declare, change func(w *world, c v1alpha1.Cluster)
	// backup is what is judged instead of the cluster.
	backup func(w *world) *v1alpha1.Backup

	condition, reason string
	// says is what the message holds: the field as the user wrote it, what is
	// allowed, the remedy.
	says []string
}

// machinery is what no message shows: Go's types and errors, verbs of a format
// that failed, regular expressions, nothing in quotes, and words of client
// libraries and of the API server's comparisons.
var machinery = regexp.MustCompile(`&value\.|%!|\bmap\[|v1alpha1\.|\bv1\.[A-Z]|resource\.Quantity|\*?\b[a-z]\w*\.[A-Z]\w+\{|Go struct|unmarshal|interface \{|<nil>|0x[0-9a-f]{6}|` +
	`\^\[|\[a-z|\[A-Z|\)\?\$|\]\*'|regex|` +
	`""|''|` +
	`operation error|api error|RequestID|HostID|StatusCode|smithy|x509:|dial tcp|` +
	`Invalid value: \S*\{|core\.\w+Spec|field is immutable|\n[-+] `)

// TestMistakesAreReported: each message names the field as the user wrote it,
// what is allowed, and the remedy, as a condition and as an event.
func TestMistakesAreReported(t *testing.T) {
	t.Parallel()
	var names []string
	for _, m := range mistakes {
		if slices.Contains(names, m.name) {
			t.Errorf("two rows are called %q", m.name)
		}
		names = append(names, m.name)
		for _, k := range kinds {
			isThis := func(other mistake) bool { return other.name == m.name }
			if m.only != nil && m.only != k || slices.ContainsFunc(k.impossible, isThis) {
				continue
			}
			t.Run(strings.ReplaceAll(m.name, " ", "_")+"/"+k.name, func(t *testing.T) {
				t.Parallel()
				m.isReported(t, newWorld(t, k))
			})
		}
	}
}

func (m mistake) isReported(t *testing.T, w *world) {
	if m.there != nil {
		m.there(w)
	}
	var judged conditions.Getter
	c := w.cluster("orders", 1)
	if m.backup != nil {
		judged = m.backup(w)
	} else {
		judged = c
	}
	if m.backup == nil || m.declare != nil || m.change != nil {
		if m.declare != nil {
			m.declare(w, c)
		}
		w.create(c)
	}
	if b, isBackup := judged.(*v1alpha1.Backup); isBackup {
		w.create(b)
	}
	w.operate(0)
	if m.change != nil {
		w.awaitReady(c)
		edit(w, c, func(c v1alpha1.Cluster) { m.change(w, c) })
	}
	apitest.Eventually(t, m.condition+" for "+m.reason, func(ctx context.Context) (bool, string) {
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(judged), judged); err != nil {
			return false, err.Error()
		}
		return conditions.GetReason(judged, m.condition) == m.reason, fmt.Sprint(judged.GetConditions())
	})
	message := conditions.GetMessage(judged, m.condition)
	m.judge(t, "condition", message)
	for _, other := range judged.GetConditions() {
		if found := machinery.FindString(other.Message); found != "" {
			t.Errorf("%s shows %q: %s", other.Type, found, other.Message)
		}
	}
	m.judge(t, "event", w.warning(judged, m.reason, m.says))
	t.Logf("%s/%s: %s", m.condition, m.reason, message)
}

// judge checks what every text about a mistake has to say.
func (m mistake) judge(t *testing.T, where, text string) {
	t.Helper()
	for _, want := range m.says {
		if !strings.Contains(text, want) {
			t.Errorf("the %s does not say %q: %s", where, want, text)
		}
	}
	if found := machinery.FindString(text); found != "" {
		t.Errorf("the %s shows %q: %s", where, found, text)
	}
}

// warning is the text of the event that an object's condition was announced
// with. A failed Job has an event of that reason before the condition has.
func (w *world) warning(about client.Object, reason string, says []string) (note string) {
	w.t.Helper()
	apitest.Eventually(w.t, "an event for "+reason, func(ctx context.Context) (bool, string) {
		var list eventsv1.EventList
		if err := w.person.List(ctx, &list, client.InNamespace(w.Namespace)); err != nil {
			return false, err.Error()
		}
		var others []string
		for i := range list.Items {
			e := &list.Items[i]
			if e.Reason == reason && e.Type == corev1.EventTypeWarning && e.Regarding.UID == about.GetUID() {
				note = e.Note
			}
			if note != "" && !slices.ContainsFunc(says, func(want string) bool { return !strings.Contains(note, want) }) {
				return true, ""
			}
			others = append(others, e.Type+" "+e.Reason+": "+e.Note)
		}
		return false, fmt.Sprint(others)
	})
	return note
}
