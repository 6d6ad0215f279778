package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// text is a database of a kind that is easy to check: lines that count up.
type text struct {
	lines int
	// breaks says after how many lines the copy ends with an error; 0 for never.
	breaks int
	// verified is how often a copy was read to its end.
	verified int
}

var endedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var errBroken = errors.New("the database went away")

func (s *text) CopyMember(_ context.Context, _ agentapi.BackupSource, to io.Writer) (Facts, error) {
	for n := range s.lines {
		if s.breaks > 0 && n == s.breaks {
			return Facts{}, errBroken
		}
		if _, err := fmt.Fprintf(to, "line %d\n", n); err != nil {
			return Facts{}, err
		}
	}
	return Facts{Version: "17.4", SystemIdentifier: "7"}, nil
}

func (s *text) VerifyCopy(_ context.Context, from io.Reader) (Facts, error) {
	data, err := io.ReadAll(from)
	if err != nil {
		return Facts{}, err
	}
	if n := bytes.Count(data, []byte("\n")); n != s.lines {
		return Facts{}, &Permanent{fmt.Errorf("%d lines in place of %d", n, s.lines)}
	}
	s.verified++
	return Facts{Start: "1", End: fmt.Sprint(s.lines), Ended: endedAt}, nil
}

// ear hears what is reported.
type ear struct {
	mu    sync.Mutex
	steps []string
	last  v1alpha1.BackupRun
	// deaf are reports of the end that are lost.
	deaf int
}

func (e *ear) ReportProgress(_ context.Context, run v1alpha1.BackupRun) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.steps); n == 0 || e.steps[n-1] != run.Step {
		e.steps = append(e.steps, run.Step)
	}
}

func (e *ear) ReportEnd(_ context.Context, run v1alpha1.BackupRun) error {
	if e.deaf > 0 {
		e.deaf--
		return errors.New("the API server is away")
	}
	e.steps, e.last = append(e.steps, run.Step), run
	return nil
}

// attempt is a pod that makes the backup, over a store in a directory.
func attempt(t *testing.T, dir, pod string, source Source, reporter Reporter) *Taker {
	t.Helper()
	return &Taker{
		Task: agentapi.BackupTask{Namespace: "shop", Name: "orders-1", UID: "u", Kind: "PostgresCluster", Cluster: "orders", ClusterUID: "c", Prefix: "shop/orders/orders-1-u/", Sources: []agentapi.BackupSource{{Name: "orders-1"}}, Expected: 1000},
		Open: func(ctx context.Context) (*store.Store, error) {
			s, err := store.Open(ctx, store.Location{URL: "file://" + dir}, nil)
			if err == nil {
				s.Patience = store.Patience{}
			}
			return s, err
		},
		Source: func(agentapi.BackupTask) (Source, error) { return source, nil },
		Pod:    pod, Reporter: reporter, Log: slog.New(slog.DiscardHandler), PartSize: 512, Every: time.Millisecond,
	}
}

func stored(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTake(t *testing.T) {
	dir, source, heard := t.TempDir(), &text{lines: 50000}, &ear{}
	if err := attempt(t, dir, "pod-a", source, heard).TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := heard.last.Result
	if r == nil || r.Version != "17.4" || r.SystemIdentifier != "7" || r.StartPosition != "1" || r.EndPosition != "50000" {
		t.Fatalf("%+v", heard.last)
	}
	if r.Manifest != "shop/orders/orders-1-u/pod-a/manifest.json" || !strings.HasPrefix(r.Checksum, "sha256:") || r.Size.Value() >= r.DataSize.Value() || source.verified != 1 {
		t.Errorf("%+v, verified %d times", r, source.verified)
	}
	if diff := cmp.Diff([]string{"Copying", "Verifying", "Done"}, heard.steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// An attempt that broke leaves nothing behind that the next one does not remove,
// and nothing that looks like a backup.
func TestAttemptThatBreaks(t *testing.T) {
	dir, heard := t.TempDir(), &ear{}
	err := attempt(t, dir, "pod-a", &text{lines: 50000, breaks: 40000}, heard).TakeBackup(t.Context())
	if !errors.Is(err, errBroken) || InVain(err) || heard.last.Result != nil || heard.last.Error == "" || heard.last.Permanent {
		t.Fatalf("%v; reported %+v", err, heard.last)
	}
	for _, name := range stored(t, dir) {
		if strings.HasSuffix(name, "manifest.json") {
			t.Errorf("%s of a copy that broke", name)
		}
	}
	if err := attempt(t, dir, "pod-b", &text{lines: 50000}, heard).TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range stored(t, dir) {
		if strings.Contains(name, "pod-a") {
			t.Errorf("%s is still there", name)
		}
	}
}

// A backup that is complete, and only could not be reported, is not made again.
func TestAttemptThatCouldNotReport(t *testing.T) {
	dir, source, heard := t.TempDir(), &text{lines: 5000}, &ear{deaf: 1}
	if err := attempt(t, dir, "pod-a", source, heard).TakeBackup(t.Context()); err == nil || InVain(err) {
		t.Fatal(err)
	}
	before := stored(t, dir)
	source.breaks = 1 // a copy would fail
	if err := attempt(t, dir, "pod-b", source, heard).TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, stored(t, dir)); diff != "" || heard.last.Result == nil || source.verified != 2 {
		t.Errorf("verified %d times, %+v; stored (-before +after):\n%s", source.verified, heard.last, diff)
	}
}

// What was changed in the store is found out before it counts.
func TestStoredDataThatChanges(t *testing.T) {
	harms := map[string]func(name string) error{
		"a part is other data": func(name string) error { return os.WriteFile(name, make([]byte, 512), 0o600) },
		"a part is shorter":    func(name string) error { return os.Truncate(name, 100) },
		"a part is gone":       os.Remove,
	}
	for what, harm := range harms {
		t.Run(what, func(t *testing.T) {
			dir, source, heard := t.TempDir(), &text{lines: 5000}, &ear{deaf: 1}
			_ = attempt(t, dir, "pod-a", source, heard).TakeBackup(t.Context())
			if err := harm(filepath.Join(dir, "shop/orders/orders-1-u/pod-a/data/000001")); err != nil {
				t.Fatal(err)
			}
			if err := attempt(t, dir, "pod-b", source, heard).TakeBackup(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := heard.last.Result; r == nil || !strings.Contains(r.Manifest, "/pod-b/") {
				t.Errorf("%+v", heard.last)
			}
		})
	}
}

// A manifest of other data, whose parts are all as they were written, is no
// backup, nor is one that cannot be read.
func TestManifestOfOtherData(t *testing.T) {
	for what, harm := range map[string]func(m *Manifest) any{
		"another checksum": func(m *Manifest) any { m.SHA256 = strings.Repeat("0", 64); return m },
		"another size":     func(m *Manifest) any { m.DataSize++; return m },
		"a part less":      func(m *Manifest) any { m.Parts = m.Parts[:len(m.Parts)-1]; return m },
		"a later format":   func(m *Manifest) any { m.Format++; return m },
		"no manifest":      func(*Manifest) any { return "hello" },
	} {
		t.Run(what, func(t *testing.T) {
			dir, source, heard := t.TempDir(), &text{lines: 5000}, &ear{deaf: 1}
			_ = attempt(t, dir, "pod-a", source, heard).TakeBackup(t.Context())
			file := filepath.Join(dir, "shop/orders/orders-1-u/pod-a/manifest.json")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var m Manifest
			if err := json.Unmarshal(data, &m); err != nil {
				t.Fatal(err)
			}
			if data, err = json.Marshal(harm(&m)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := attempt(t, dir, "pod-b", source, heard).TakeBackup(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := heard.last.Result; r == nil || !strings.Contains(r.Manifest, "/pod-b/") {
				t.Errorf("%+v", heard.last)
			}
		})
	}
}

// A copy that its engine refuses is none, however well it was stored.
func TestCopyThatIsRefused(t *testing.T) {
	heard := &ear{}
	source := &refusing{text{lines: 10}}
	err := attempt(t, t.TempDir(), "pod-a", source, heard).TakeBackup(t.Context())
	if !InVain(err) || !heard.last.Permanent || heard.last.Step != v1alpha1.BackupStepVerifying || !strings.Contains(heard.last.Error, "no database") {
		t.Errorf("%v; reported %+v", err, heard.last)
	}
}

type refusing struct{ text }

func (*refusing) VerifyCopy(context.Context, io.Reader) (Facts, error) {
	return Facts{}, &Permanent{errors.New("this is no database")}
}

func TestStoreThatIsNotThere(t *testing.T) {
	heard := &ear{}
	err := attempt(t, "/nonexistent", "pod-a", &text{lines: 1}, heard).TakeBackup(t.Context())
	if !InVain(err) || !heard.last.Permanent {
		t.Errorf("%v; reported %+v", err, heard.last)
	}
}

func TestProgress(t *testing.T) {
	for _, tc := range []struct {
		n, expected int64
		want        string
	}{{0, 100, "0%"}, {45, 100, "45%"}, {200, 100, "99%"}, {5 << 20, 0, "5Mi"}} {
		if got := formatProgress(tc.n, tc.expected); got != tc.want {
			t.Errorf("%d of %d: %s", tc.n, tc.expected, got)
		}
	}
}

// cut is a database whose connection ends in the middle.
type cut struct {
	text
	with error
}

func (c *cut) CopyMember(ctx context.Context, member agentapi.BackupSource, to io.Writer) (Facts, error) {
	facts, err := c.text.CopyMember(ctx, member, to)
	return facts, errors.Join(err, c.with)
}

// A connection that ends is no copy that ends, whatever its error says.
func TestCopyThatIsCutOff(t *testing.T) {
	for _, with := range []error{io.EOF, io.ErrUnexpectedEOF, fmt.Errorf("receive: %w", io.ErrUnexpectedEOF)} {
		dir, heard := t.TempDir(), &ear{}
		err := attempt(t, dir, "pod-a", &cut{text{lines: 5000}, with}, heard).TakeBackup(t.Context())
		if !errors.Is(err, with) || InVain(err) || heard.last.Result != nil || len(stored(t, dir)) != 0 {
			t.Errorf("%v; reported %+v; stored %v", err, heard.last, stored(t, dir))
		}
	}
}

// The manifest says when the database had written the end; one of before, when
// the copy was finished.
func TestEndedBy(t *testing.T) {
	dir, heard := t.TempDir(), &ear{}
	if err := attempt(t, dir, "pod-a", &text{lines: 3}, heard).TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Location{URL: "file://" + dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing is written
	m, _, err := ReadManifest(t.Context(), s, heard.last.Result.Manifest)
	if err != nil || !m.EndedBy().Equal(endedAt) {
		t.Errorf("it ended by %s, %v", m.EndedBy(), err)
	}
	m.Ended = time.Time{}
	if !m.EndedBy().Equal(m.Finished) || m.Finished.IsZero() {
		t.Errorf("without: %s", m.EndedBy())
	}
}
