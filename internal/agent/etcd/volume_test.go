package etcd

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

func TestReadRaftLog(t *testing.T) {
	data := t.TempDir()
	if _, err := readRaftLog(data); !errors.Is(err, errNoRaftLog) {
		t.Errorf("no log: %v", err)
	}
	want := raftLogState{Member: "8e9e05c52164694d", Cluster: ours, Commit: 70000}
	writeLog(t, data, want)
	read := func() raftLogState {
		t.Helper()
		got, err := readRaftLog(data)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A newer file of the Raft log goes further, and what etcd is writing is torn.
	other := t.TempDir()
	newer := want
	newer.Commit = 80000
	writeLog(t, other, newer)
	wal := filepath.Join("member", "wal")
	text, err := os.ReadFile(filepath.Join(other, wal, "0000000000000000-0000000000000000.wal"))
	if err != nil {
		t.Fatal(err)
	}
	torn := append(text[:len(text)-64], 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3)
	if err := os.WriteFile(filepath.Join(data, wal, "0000000000000001-0000000000000900.wal"), torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(newer, read()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.WriteFile(filepath.Join(data, wal, "0000000000000002-0000000000000a00.wal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readRaftLog(data); err == nil {
		t.Errorf("a log that does not say whose it is: %+v", got)
	}
}

func TestInspect(t *testing.T) {
	dir := t.TempDir()
	check := func(what string, content content) volume {
		t.Helper()
		v, err := inspectVolume(dir)
		if err != nil {
			t.Fatal(err)
		}
		if v.Content != content {
			t.Errorf("%s: content %d (%s), want %d", what, v.Content, v.Unknown, content)
		}
		return v
	}
	for _, name := range []string{"lost+found", removedPrefix + "a"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	check("what a new volume holds", contentEmpty)
	if err := nameVolume(dir); err != nil {
		t.Fatal(err)
	}
	name := check("a named volume", contentEmpty).Mark.Volume
	if err := nameVolume(dir); err != nil {
		t.Fatal(err)
	}
	if again := check("a volume that is named twice", contentEmpty).Mark.Volume; name == "" || again != name {
		t.Errorf("named %q, then %q", name, again)
	}
	if err := os.MkdirAll(filepath.Join(dir, dataName, "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	check("a first start without a log", contentEmpty)
	writeLog(t, filepath.Join(dir, dataName), raftLogState{Member: "a", Cluster: ours})
	check("data", contentData)
	if err := os.Mkdir(filepath.Join(dir, "pgdata"), 0o700); err != nil {
		t.Fatal(err)
	}
	check("data beside something else", contentData)
	if err := setAside(dir, "b"); err != nil {
		t.Fatal(err)
	}
	check("something else", contentUnknown)
	if err := os.Remove(filepath.Join(dir, "pgdata")); err != nil {
		t.Fatal(err)
	}
	check("data that was set aside", contentEmpty)
	if any, err := dropAside(dir); !any || err != nil {
		t.Errorf("dropped %v, %v", any, err)
	}
	if any, err := dropAside(dir); any || err != nil {
		t.Errorf("dropped again %v, %v", any, err)
	}
}

// A log that cannot be read is no volume without data: its member is not lost.
func TestUnreadableRaftLog(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, dataName, "member", "wal")
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, nil, 0o600); err != nil { // no directory, so that root cannot read it either
		t.Fatal(err)
	}
	if v, err := inspectVolume(dir); err == nil {
		t.Errorf("content %d (%s)", v.Content, v.Unknown)
	}
	if err := (&startGuard{dir: dir}).clearStart(); err == nil {
		t.Error("it was cleared away")
	}
}

// A first start moves away what an earlier one left, and never data.
func TestClearStart(t *testing.T) {
	g := &startGuard{dir: t.TempDir()}
	if err := g.clearStart(); err != nil {
		t.Errorf("an empty volume: %v", err)
	}
	data := filepath.Join(g.dir, dataName)
	if err := os.MkdirAll(filepath.Join(data, "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := g.clearStart(); err != nil {
		t.Errorf("a first start without a log: %v", err)
	}
	if rest, _ := filepath.Glob(filepath.Join(g.dir, removedPrefix+"rest-*", dataName)); len(rest) != 1 {
		t.Errorf("what was left is at %v", rest)
	}
	writeLog(t, data, raftLogState{Member: "a", Cluster: ours})
	if err := g.clearStart(); err == nil {
		t.Error("data was moved away")
	}
}

func TestGroupOfAVolume(t *testing.T) {
	unsettled, other := data("a"), data("b")
	unsettled.Mark.Member, other.Mark.Member = "", "a"
	for name, c := range map[string]struct {
		volume volume
		want   *etcdapi.Group
	}{
		"a recorded member":               {data("a"), &etcdapi.Group{Self: "a"}},
		"a member that is not recorded":   {unsettled, nil},
		"another member than is recorded": {other, nil},
		"no data":                         {empty(mark{Member: "a"}), nil},
	} {
		if diff := cmp.Diff(c.want, c.volume.knownGroup()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The volume learns the version once etcd has had a leader, and the member is
// recorded: what never ran in its group has not served the data.
func TestKeepVersion(t *testing.T) {
	dir := t.TempDir()
	settled(t, dir, mark{Volume: "v1", Recovered: "1"}, raftLogState{Member: "a", Cluster: ours})
	store := statusserver.NewStore(agentapi.Status{})
	l := &etcdRun{etcdAgent: &etcdAgent{o: Options{DataDir: dir}, version: "3.6.16", Host: &agent.Host{Store: store}}}
	kept := func(want string) {
		t.Helper()
		l.keepVersion()
		v, err := inspectVolume(dir)
		if err != nil || v.servedVersion() != want || readGroup(store.Get()).DataVersion != want || v.Mark.Recovered != "1" || v.Mark.Member != "a" {
			t.Errorf("the volume has %+v, the status %q; want %q; %v", v.Mark, readGroup(store.Get()).DataVersion, want, err)
		}
	}
	kept("")
	l.self = "a"
	kept("")
	l.self, l.led = "", true
	kept("")
	l.self = "a"
	kept("3.6.16")
	l.version, l.versionKept = "3.7.3", false
	kept("3.7.3")
	m, err := readMark(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Served.Member = "b"
	if err := m.writeTo(dir); err != nil {
		t.Fatal(err)
	}
	if v, err := inspectVolume(dir); v.servedVersion() != "" || err != nil {
		t.Errorf("the version of other data: %q, %v", v.servedVersion(), err)
	}
}
