//go:build postgres

package postgres

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// listFiles is every file of a directory with its size and content, by name.
func listFiles(t *testing.T, dir string) string {
	t.Helper()
	command := exec.Command("bash", "-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum")
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("list %s: %v: %s", dir, err, out)
	}
	return string(out)
}

// exchangeWAL puts another copy of pg_wal in the place of a volume's, and returns
// what puts the former one back.
func exchangeWAL(t *testing.T, volume, from string) (putBack func()) {
	t.Helper()
	place, aside := filepath.Join(volume, datavolume.DataName, "pg_wal"), filepath.Join(t.TempDir(), "pg_wal")
	if out, err := exec.Command("cp", "-a", place, aside).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	replace := func(from string) {
		if err := os.RemoveAll(place); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-a", from, place).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	replace(from)
	return func() { replace(aside) }
}

// emptyWAL is a pg_wal directory whose segments have no content.
func emptyWAL(t *testing.T, volume string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pg_wal")
	if out, err := exec.Command("cp", "-a", filepath.Join(volume, datavolume.DataName, "pg_wal"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "0*"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%v, %v", segments, err)
	}
	for _, segment := range segments {
		if err := os.Truncate(segment, 0); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A member whose pg_wal is older than its pg_control, or empty, is held: with the
// remedy, and with every file left as it was. It goes on when its WAL is back.
func TestRealLostWALIsHeld(t *testing.T) {
	w, volumes, old := twoMembers(t)
	primary := w.start(0, volumes[0], "uid-0p")
	primary.untilRole(v1alpha1.RolePrimary)
	for range 3 {
		primary.exec("select pg_switch_wal()", "create table if not exists public.more (n int)", "insert into public.more values (1)")
	}
	primary.exec("checkpoint")
	replica := w.start(1, volumes[1], "uid-1p")
	replica.untilRole(v1alpha1.RoleReplica)
	replica.sameContent(primary)
	replica.exec("checkpoint")
	want := primary.content()
	replica.stop()
	primary.stop()

	for name, from := range map[string]string{"older": filepath.Join(old, datavolume.DataName, "pg_wal"), "empty": emptyWAL(t, volumes[0])} {
		putBack := exchangeWAL(t, volumes[0], from)
		before := listFiles(t, filepath.Join(volumes[0], datavolume.DataName))
		held := w.start(0, volumes[0], "uid-0"+name)
		held.untilHeld(agentapi.HoldWALMissing)
		for _, words := range []string{"orders-0", "pg_wal", "backup"} {
			if message := held.Store.Get().Message; !strings.Contains(message, words) {
				t.Errorf("%s: the message does not say %q: %s", name, words, message)
			}
		}
		if after := listFiles(t, filepath.Join(volumes[0], datavolume.DataName)); after != before {
			t.Errorf("%s: the files have changed:\n%s\n%s", name, before, after)
		}
		held.stop()
		putBack()
	}
	primary = w.start(0, volumes[0], "uid-0q")
	primary.untilRole(v1alpha1.RolePrimary)
	if got := primary.content(); got != want {
		t.Errorf("the primary holds %s, and held %s", got, want)
	}

	putBack := exchangeWAL(t, volumes[1], filepath.Join(old, datavolume.DataName, "pg_wal"))
	before := listFiles(t, filepath.Join(volumes[1], datavolume.DataName))
	held := w.start(1, volumes[1], "uid-1q")
	held.untilHeld(agentapi.HoldWALMissing)
	if message := held.Store.Get().Message; !strings.Contains(message, "kubectl delete pvc data-orders-1 -n shop --wait=false") {
		t.Errorf("message %q", message)
	}
	if after := listFiles(t, filepath.Join(volumes[1], datavolume.DataName)); after != before {
		t.Errorf("the files have changed:\n%s\n%s", before, after)
	}
	putBack()
	held.untilRole(v1alpha1.RoleReplica)
	held.sameContent(primary)
	held.stop()

	anew := w.start(1, t.TempDir(), "uid-1r")
	anew.untilRole(v1alpha1.RoleReplica)
	anew.sameContent(primary)
}
