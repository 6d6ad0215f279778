package restore

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/store"
)

// files are a database: what it holds, by name.
type files map[string]string

func (f files) tar(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range f {
		err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o600, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// source copies files.
type source struct{ data []byte }

func (s source) CopyMember(_ context.Context, _ agentapi.BackupSource, to io.Writer) (backup.Facts, error) {
	_, err := to.Write(s.data)
	return backup.Facts{Version: "1.2", SystemIdentifier: "sys", End: "42"}, err
}

func (s source) VerifyCopy(_ context.Context, from io.Reader) (backup.Facts, error) {
	_, err := io.Copy(io.Discard, from)
	return backup.Facts{}, err
}

// files as an engine: recovered data has one more file.
type engine struct {
	need       int64
	fits, dies error
	recovered  int
	// late are the backups that end after any target, left those of a branch that
	// was left; unarchived is why there is no log.
	late, left []string
	unarchived error
	// job is the last recovery, and last what it says.
	job  Recovery
	last time.Time
	// unsound is what Check finds, in which it was so often.
	unsound error
	checked int
}

func (e *engine) VolumeLayout() Layout { return Layout{Data: "db", Proof: "inner"} }

func (e *engine) CheckFit(context.Context, backup.Manifest) (int64, error) { return e.need, e.fits }

func (e *engine) UnpackCopy(_ context.Context, from io.Reader, dir string) error {
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(archive)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, header.Name), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
}

func (e *engine) EndsBefore(m backup.Manifest, _ v1alpha1.RestoreTarget) bool {
	return !slices.Contains(e.late, m.Backup)
}

func (e *engine) CheckArchive(_ context.Context, _ *store.Store, m backup.Manifest, _ v1alpha1.RestoreTarget) error {
	if slices.Contains(e.left, m.Backup) {
		return &Left{errors.New("it has been left")}
	}
	return e.unarchived
}

func (e *engine) RecoverCopy(_ context.Context, job Recovery) (Outcome, error) {
	e.recovered++
	e.job = job
	data := filepath.Join(job.Dir, Recovered)
	if err := os.MkdirAll(filepath.Join(data, "inner"), 0o700); err != nil {
		return Outcome{}, err
	}
	entries, err := os.ReadDir(job.Dir)
	for _, entry := range entries {
		if !entry.IsDir() {
			err = errors.Join(err, os.Rename(filepath.Join(job.Dir, entry.Name()), filepath.Join(data, entry.Name())))
		}
	}
	out := Outcome{SystemIdentifier: "new-" + job.Manifest.SystemIdentifier}
	if job.Target != nil {
		out.End, out.Last = "43", e.last
	}
	return out, errors.Join(err, e.dies)
}

func (e *engine) CheckData(_ context.Context, _ *volumelock.VolumeLock, data string) ([]string, error) {
	e.checked++
	entries, err := os.ReadDir(data)
	return []string{fmt.Sprintf("%d files", len(entries)-1)}, errors.Join(err, e.unsound)
}

// reports are what was reported to the operator.
type reports struct {
	last  Run
	steps []string
	fails error
}

func (r *reports) ReportProgress(_ context.Context, run Run) {
	if n := len(r.steps); n == 0 || r.steps[n-1] != run.Step {
		r.steps = append(r.steps, run.Step)
	}
}

func (r *reports) ReportEnd(_ context.Context, run Run) error {
	r.last = run
	return r.fails
}

// world is a store with backups, and a volume.
type world struct {
	dir, volume string
	task        agentapi.RestoreTask
	engine      *engine
	said        *reports
	passed      func(string) error
	opened      func()
	space       func() diskspace.Space
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		dir: t.TempDir(), volume: t.TempDir(), engine: &engine{}, said: &reports{},
		space: func() diskspace.Space { return diskspace.Space{Free: 1 << 29, Total: 1 << 30} },
		task:  agentapi.RestoreTask{Namespace: "shop", Name: "again", UID: "c-2", Kind: "PostgresCluster", Member: "again-0", Prefix: "shop/orders/", VolumeSize: 1 << 30},
	}
	return w
}

func (w *world) open(ctx context.Context) (*store.Store, error) {
	if w.opened != nil {
		w.opened()
	}
	return store.Open(ctx, store.Location{URL: "file://" + w.dir}, nil)
}

// backup stores files, and returns the key of the manifest.
func (w *world) backup(t *testing.T, clusterUID, name string, content files) *v1alpha1.BackupResult {
	t.Helper()
	uid := name + "-0000-uid"
	task := agentapi.BackupTask{
		Namespace: "shop", Name: name, UID: uid, Kind: "PostgresCluster", Cluster: "orders", ClusterUID: clusterUID,
		Prefix:  fmt.Sprintf("shop/orders/%s/%s-%s/", clusterUID, name, uid),
		Sources: []agentapi.BackupSource{{Name: "orders-1"}},
	}
	said := &taken{}
	taker := &backup.Taker{
		Task: task, Pod: "pod", Log: slog.New(slog.DiscardHandler), Reporter: said, PartSize: 1 << 10, Open: w.open,
		Source: func(agentapi.BackupTask) (backup.Source, error) { return source{content.tar(t)}, nil },
	}
	if err := taker.TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	return said.result
}

type taken struct{ result *v1alpha1.BackupResult }

func (c *taken) ReportProgress(context.Context, v1alpha1.BackupRun) {}

func (c *taken) ReportEnd(_ context.Context, run v1alpha1.BackupRun) error {
	c.result = run.Result
	return nil
}

func (w *world) restore(t *testing.T) error {
	t.Helper()
	r := &Restorer{
		Task: w.task, Volume: w.volume, Open: w.open, Engine: w.engine, Reporter: w.said, Log: slog.New(slog.DiscardHandler), passed: w.passed,
		space: w.space,
	}
	return r.RestoreVolume(t.Context())
}

// content of a directory, by path; of a directory itself a slash.
func content(t *testing.T, dir string) files {
	t.Helper()
	all := files{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil || name == "." || name == volumelock.LockFile:
			return err
		case entry.IsDir():
			all[name] = "/"
			return nil
		case entry.Type()&fs.ModeSymlink != 0:
			all[name], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
