package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// run the command as a Job's pod does, with a task.
func run(t *testing.T, verb string, task agentapi.BackupTask) error {
	t.Helper()
	data, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(agentapi.EnvTask, string(data))
	cmd := NewCommand("test", map[string]func(agentapi.BackupTask) (Source, error){
		"text": func(agentapi.BackupTask) (Source, error) { return &text{}, nil },
	}, map[string]PruneFunc{"PostgresCluster": wal.PruneArchive})
	cmd.SetArgs([]string{verb})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.ExecuteContext(t.Context())
}

// A removal takes what is below its prefix, and can be made again.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"shop/orders/a-1/pod/manifest.json", "shop/orders/a-1/pod/data/000000", "shop/orders/a-10/pod/manifest.json"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	task := agentapi.BackupTask{Store: agentapi.BackupStore{URL: "file://" + dir}, Prefix: "shop/orders/a-1/"}
	for range 2 {
		if err := run(t, "remove", task); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"shop/orders/a-10/pod/manifest.json"}, stored(t, dir)); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	}
}

// The log that no other backup needs goes along; an archive that is not there is
// no reason to stay.
func TestRemoveTakesWALAlong(t *testing.T) {
	dir := t.TempDir()
	task := agentapi.BackupTask{Store: agentapi.BackupStore{URL: "file://" + dir}, Prefix: "shop/orders/c/a-1/", Kind: "PostgresCluster", Log: &agentapi.LogTask{Prefix: "shop/orders/c/wal/", Kept: []string{"1:0/300028"}}}
	if err := run(t, "remove", task); err != nil {
		t.Error(err)
	}
	var packed bytes.Buffer
	pack, err := zstd.NewWriter(&packed)
	if err == nil {
		_, err = pack.Write(make([]byte, 1<<20)) // the size of a segment
	}
	if err := errors.Join(err, pack.Close(), os.MkdirAll(filepath.Join(dir, "shop/orders/c/wal/00000001"), 0o700)); err != nil {
		t.Fatal(err)
	}
	const first, second, third = "000000010000000000000001", "000000010000000000000002", "000000010000000000000003"
	for _, name := range []string{first, second, third} {
		if err := os.WriteFile(filepath.Join(dir, "shop/orders/c/wal/00000001", name+".zst"), packed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t, "remove", task); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"shop/orders/c/wal/00000001/" + third + ".zst"}, stored(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// What an abandoned backup left is swept, unless it is whole.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/whole/pod-1/data/000000", "a/whole/pod-2/manifest.json", "a/whole/pod-2/data/000000", "a/parts/pod-1/data/000000"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, prefix := range []string{"a/whole/", "a/parts/", "a/nothing/"} {
		if err := run(t, "sweep", agentapi.BackupTask{Store: agentapi.BackupStore{URL: "file://" + dir}, Prefix: prefix}); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"a/whole/pod-1/data/000000", "a/whole/pod-2/data/000000", "a/whole/pod-2/manifest.json"}
	if diff := cmp.Diff(want, stored(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// What another try does not repair has an exit code of its own; and nothing is
// ever removed without a prefix.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "keep"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		verb string
		task agentapi.BackupTask
		code int
	}{
		"no prefix":            {"remove", agentapi.BackupTask{Store: agentapi.BackupStore{URL: "file://" + dir}}, agentapi.ExitPermanent},
		"half a prefix":        {"remove", agentapi.BackupTask{Store: agentapi.BackupStore{URL: "file://" + dir}, Prefix: "shop/orders/a"}, agentapi.ExitPermanent},
		"no store":             {"remove", agentapi.BackupTask{Store: agentapi.BackupStore{URL: "file:///nonexistent"}, Prefix: "a/"}, agentapi.ExitPermanent},
		"no API server so far": {"text", agentapi.BackupTask{Store: agentapi.BackupStore{URL: "file://" + dir}, Prefix: "a/"}, 0},
	}
	for name, tc := range cases {
		err, code := run(t, tc.verb, tc.task), 0
		if ended := (*Exit)(nil); errors.As(err, &ended) {
			code = ended.Code
		}
		if err == nil || code != tc.code {
			t.Errorf("%s: %v, with exit code %d", name, err, code)
		}
	}
	if diff := cmp.Diff([]string{"keep"}, stored(t, dir)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// Secrets and certificates are read as the kubelet mounts them.
func TestMounts(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "..2026_03_01"), 0o700); err != nil {
		t.Fatal(err)
	}
	secret, err := store.ReadSecret(dir)
	if diff := cmp.Diff(store.Secret{"tls.crt": []byte("tls.crt"), "tls.key": []byte("tls.key"), "ca.crt": []byte("ca.crt")}, secret); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if secret, err := store.ReadSecret(filepath.Join(dir, "absent")); secret != nil || err != nil {
		t.Errorf("%v, %v", secret, err)
	}
	id, err := readIdentity(dir)
	if err != nil || string(id.RootsPEM) != "ca.crt\n\n" && string(id.RootsPEM) != "ca.crt\n" {
		t.Errorf("%q, %v", id.RootsPEM, err)
	}
	if _, err := id.TLSConfig(); err == nil {
		t.Error("a certificate that is none is taken")
	}
	if err := os.WriteFile(filepath.Join(dir, "server-ca.crt"), []byte("server"), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := readIdentity(dir); err != nil || string(id.RootsPEM) != "ca.crt\nserver\n" {
		t.Errorf("%q, %v", id.RootsPEM, err)
	}
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if _, err := readIdentity(dir); err == nil {
		t.Error("no CA to trust is no error")
	}
}
