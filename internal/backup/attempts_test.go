package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const prefix = "shop/orders/orders-1-u/"

// meanwhile calls a hook when its copy is verified: what others do meanwhile.
type meanwhile struct {
	text
	do func()
}

func (s *meanwhile) VerifyCopy(ctx context.Context, from io.Reader) (Facts, error) {
	facts, err := s.text.VerifyCopy(ctx, from)
	s.do()
	return facts, err
}

// An attempt that was believed dead, and whose parts are removed before it ends,
// never counts.
func TestPartsThatAreRemovedBeforeTheEnd(t *testing.T) {
	for what, harm := range map[string]func(name string) error{"removed": os.Remove, "replaced": func(name string) error { return os.Truncate(name, 1) }} {
		dir, heard := t.TempDir(), &ear{}
		source := &meanwhile{text{lines: 5000}, func() {
			if err := harm(filepath.Join(dir, prefix, "pod-a/data/000001")); err != nil {
				t.Error(err)
			}
		}}
		err := attempt(t, dir, "pod-a", source, heard).TakeBackup(t.Context())
		if err == nil || InVain(err) || heard.last.Result != nil || !strings.Contains(err.Error(), "000001") {
			t.Errorf("%s: %v; reported %+v", what, err, heard.last)
		}
		if left := stored(t, dir); len(left) != 0 {
			t.Errorf("%s: %v is left", what, left)
		}
	}
}

// What an earlier attempt has stored stays until this one is complete: it may
// still be alive.
func TestEarlierAttemptsStayUntilTheEnd(t *testing.T) {
	dir, heard := t.TempDir(), &ear{}
	part := filepath.Join(dir, prefix, "pod-a/data/000000")
	if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o700), os.WriteFile(part, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	stillThere := false
	source := &meanwhile{text{lines: 5000}, func() { _, err := os.Stat(part); stillThere = err == nil }}
	if err := attempt(t, dir, "pod-b", source, heard).TakeBackup(t.Context()); err != nil || !stillThere {
		t.Errorf("%v; still there: %v", err, stillThere)
	}
	if _, err := os.Stat(part); err == nil {
		t.Error("what was left stays")
	}
}

// Of two attempts that live, either has the result of one that is whole, and
// removes nothing of it.
func TestTwoAttemptsAtOnce(t *testing.T) {
	dir, first, second := t.TempDir(), &ear{}, &ear{}
	source := &meanwhile{text{lines: 5000}, func() {
		if err := attempt(t, dir, "pod-b", &text{lines: 5000}, second).TakeBackup(t.Context()); err != nil {
			t.Error(err)
		}
	}}
	err := attempt(t, dir, "pod-a", source, first).TakeBackup(t.Context())
	if err == nil && first.last.Result.Manifest != second.last.Result.Manifest {
		t.Errorf("two results: %s, %s", first.last.Result.Manifest, second.last.Result.Manifest)
	}
	if InVain(err) {
		t.Error(err)
	}
	third := &ear{}
	if err := attempt(t, dir, "pod-c", &text{lines: 5000, breaks: 1}, third).TakeBackup(t.Context()); err != nil || third.last.Result.Manifest != second.last.Result.Manifest {
		t.Errorf("what was reported is not whole: %v", err)
	}
}

// What fails for good leaves nothing, nor does what is tried again.
func TestFailuresLeaveNothing(t *testing.T) {
	for name, source := range map[string]Source{"for good": &refusing{text{lines: 5000}}, "for now": &text{lines: 50000, breaks: 40000}} {
		dir := t.TempDir()
		if err := attempt(t, dir, "pod-a", source, &ear{}).TakeBackup(t.Context()); err == nil {
			t.Fatal("it does not fail")
		}
		if left := stored(t, dir); len(left) != 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

// A backup that is not needed any more is removed by the pod that made it.
func TestUnwanted(t *testing.T) {
	for _, why := range []error{errGone, errAbandoned} {
		dir := t.TempDir()
		err := attempt(t, dir, "pod-a", &text{lines: 5000}, &refusingEar{why: why}).TakeBackup(t.Context())
		if !errors.Is(err, why) || !InVain(err) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		err = attempt(t, dir, "pod-b", &meanwhile{text{lines: 5000}, func() { cancel(why) }}, &refusingEar{why: why}).TakeBackup(ctx)
		if !errors.Is(err, why) || !InVain(err) {
			t.Error(err)
		}
		if left := stored(t, dir); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	}
}

type refusingEar struct {
	ear
	why error
}

// A pod that is asked to stop says how it ended all the same, and a complete
// backup counts.
func TestAskedToStop(t *testing.T) {
	dir, heard := t.TempDir(), &ear{}
	ctx, cancel := context.WithCancel(t.Context())
	if err := attempt(t, dir, "pod-a", &meanwhile{text{lines: 5000}, cancel}, heard).TakeBackup(ctx); err == nil || InVain(err) || heard.last.Error == "" {
		t.Errorf("%v; reported %+v", err, heard.last)
	}
	if left := stored(t, dir); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

// group is members of which some cannot be copied.
type group struct {
	text
	unfit  map[string]error
	system string
}

func (g *group) CopyMember(ctx context.Context, member agentapi.BackupSource, to io.Writer) (Facts, error) {
	if err := g.unfit[member.Name]; err != nil {
		_, _ = fmt.Fprintln(to, "what a copy begins with")
		return Facts{}, err
	}
	facts, err := g.text.CopyMember(ctx, member, to)
	if g.system != "" {
		facts.SystemIdentifier = g.system
	}
	return facts, err
}

func TestNextMember(t *testing.T) {
	behind, never := errors.New("it is behind"), &Permanent{errors.New("it is of another cluster")}
	cases := []struct {
		name   string
		unfit  map[string]error
		system string
		source string
		vain   bool
	}{
		{"the first", nil, "7", "a", false},
		{"the next, where one is unfit", map[string]error{"a": behind}, "7", "b", false},
		{"the next, where one is unfit for good", map[string]error{"a": never}, "7", "b", false},
		{"none, for now", map[string]error{"a": never, "b": behind}, "7", "", false},
		{"none, for good", map[string]error{"a": never, "b": never}, "7", "", true},
		{"none of another system", nil, "8", "", true},
	}
	for _, tc := range cases {
		dir, heard := t.TempDir(), &ear{}
		a := attempt(t, dir, "pod-a", &group{text{lines: 5000}, tc.unfit, tc.system}, heard)
		a.Task.Sources = []agentapi.BackupSource{{Name: "a"}, {Name: "b"}}
		a.Task.SystemIdentifier = "7"
		err := a.TakeBackup(t.Context())
		if tc.source == "" {
			if err == nil || InVain(err) != tc.vain || len(stored(t, dir)) != 0 {
				t.Errorf("%s: %v; stored %v", tc.name, err, stored(t, dir))
			}
			continue
		}
		if err != nil || heard.last.Result.Source != tc.source {
			t.Errorf("%s: %v; reported %+v", tc.name, err, heard.last)
		}
	}
}

// A database that gives nothing is left; one that waits for the store is not.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := time.Duration(0)
		ctx, w, stop := Watch(t.Context(), writes(func(p []byte) (int, error) { time.Sleep(waits); return len(p), nil }))
		defer stop()
		for _, waits = range []time.Duration{0, time.Hour, 0} {
			time.Sleep(silence - time.Second)
			if _, err := w.Write([]byte("x")); err != nil || ctx.Err() != nil {
				t.Fatalf("%v, %v", err, context.Cause(ctx))
			}
		}
		time.Sleep(silence + time.Second)
		if err := context.Cause(ctx); err == nil || !strings.Contains(err.Error(), "nothing for 10m") {
			t.Error(err)
		}
	})
}

type writes func([]byte) (int, error)

func (w writes) Write(p []byte) (int, error) { return w(p) }

func (e *refusingEar) ReportEnd(context.Context, v1alpha1.BackupRun) error { return e.why }
