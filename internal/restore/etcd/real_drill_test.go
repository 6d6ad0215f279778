//go:build etcd

package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	memberetcd "github.com/holdfast-db/holdfast/internal/agent/etcd"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/restore"
)

// trial is a restorer of a drill.
func (w *world) trial(t *testing.T) *restore.Restorer {
	t.Helper()
	t.Setenv("PATH", w.bin+":"+os.Getenv("PATH"))
	version, dir, err := memberetcd.ImageVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &restore.Restorer{
		Task:   agentapi.RestoreTask{Namespace: "shop", Name: "orders", UID: "c-1-drill", Kind: "EtcdCluster", Member: "drill", Prefix: "shop/orders/"},
		Volume: t.TempDir(), Open: w.open, Reporter: &reports{}, Log: slog.New(slog.DiscardHandler),
		Engine: &Engine{
			Member: "drill", PeerURL: "http://127.0.0.1:2380", Token: "c-1-drill", Version: version,
			Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}, ClientPort: freePort(t), PeerPort: freePort(t),
		},
	}
}

// filled is a world whose etcd was copied with more keys than are read at once.
func filled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	c, stop := w.start(t, filepath.Join(t.TempDir(), "data"))
	for n := range 299 { // beside the one by which the test knows that etcd is ready
		if _, err := c.Put(t.Context(), fmt.Sprintf("key-%d", n), strings.Repeat("v", 2000)); err != nil {
			t.Fatal(err)
		}
	}
	w.backup(t)
	stop()
	return w
}

// A backup is restored on trial, and all of it read.
func TestRealDrill(t *testing.T) {
	w := filled(t)
	r := w.trial(t)
	report, err := r.DrillBackup(t.Context())
	if refuses(t, r.Volume, err) {
		return
	}
	said := strings.Join(report.Checked, "; ")
	if err != nil || report.Backup != "nightly" || !strings.Contains(said, "leads as a group of one") || !strings.Contains(said, "300 keys were read") {
		t.Error(err, report)
	}
}

// What is wrong with the data is found.
func TestRealDrillOfBadData(t *testing.T) {
	w := filled(t)
	r := w.trial(t)
	r.Engine = &rotten{r.Engine.(*Engine)}
	report, err := r.DrillBackup(t.Context())
	if refuses(t, r.Volume, err) {
		return
	}
	if err == nil || report.Error == "" || !strings.Contains(report.Checked[0], "restored up to") {
		t.Error(err, report)
	}
	if strings.Contains(report.Error, "not know") || backup.InVain(err) && !strings.Contains(report.Error, "etcd") {
		t.Error(report.Error)
	}
}

// rotten overwrites all but the first pages of what was restored.
type rotten struct{ *Engine }

func (r *rotten) CheckData(ctx context.Context, lock *volumelock.VolumeLock, data string) ([]string, error) {
	name := filepath.Join(data, "member", "snap", "db")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	clear(text[2*4096:])
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return nil, err
	}
	return r.Engine.CheckData(ctx, lock, data)
}
