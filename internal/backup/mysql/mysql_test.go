package mysql

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/backup"
)

const (
	groupName = "5b8f3c1e-0000-5000-8000-000000000001"
	executed  = groupName + ":1-9"
)

var about = aboutCopy{Format: aboutFormat, Version: "9.7.4", Group: groupName, Executed: executed, EndedMicros: 1_700_000_000_123_456}

// A secondary is copied, and the primary only where it is alone.
func TestDescribeUnfit(t *testing.T) {
	view := func(states ...string) (view []viewMember) {
		for i, state := range states {
			m := viewMember{string(rune('a' + i)), state, "SECONDARY"}
			if i == 0 {
				m.role = rolePrimary
			}
			view = append(view, m)
		}
		return view
	}
	cases := []struct {
		name, uuid string
		view       []viewMember
		says       string
	}{
		{"a secondary", "B", view("ONLINE", "ONLINE", "ONLINE"), ""},
		{"the primary beside a secondary", "a", view("ONLINE", "RECOVERING", "ONLINE"), "it leads"},
		{"the primary beside members that lack something", "a", view("ONLINE"), ""},
		{"a member that recovers", "b", view("ONLINE", "RECOVERING", "ONLINE"), "it is not online"},
		{"a member that was expelled", "d", view("ONLINE", "ONLINE", "ONLINE"), "it is not online"},
		{"a member without a majority", "b", view("UNREACHABLE", "ONLINE", "UNREACHABLE"), "no majority"},
		{"half of a group", "b", view("UNREACHABLE", "ONLINE"), "no majority"},
		{"a member in no group", "a", []viewMember{{"", "OFFLINE", ""}}, "it is not online"},
	}
	for _, c := range cases {
		if why := describeUnfit(c.view, c.uuid); (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: %q", c.name, why)
		}
	}
}

// newData is a data directory as a server leaves it, without tablespaces.
func newData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"ib_buffer_pool", "mysql_upgrade_history", "#innodb_redo/#ib_redo6", "app/orders.sdi",
		"auto.cnf", "mysqld-auto.cnf", "server-key.pem", "#innodb_temp/temp_1.ibt", "#clone/#status", "ibtmp1", "#innodb_redo/#ib_redo7_tmp",
		"relay-group_replication_applier.000001", "relay.index", "binlog.000001", "binlog.index", "#ib_16384_0.dblwr", "mysqld.pid", ".hidden", "app/.hidden",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What identifies the server, and what it makes again, is no part of a copy.
func TestWriteCopy(t *testing.T) {
	var out bytes.Buffer
	if err := writeCopy(t.Context(), newData(t), about, &out); err != nil {
		t.Fatal(err)
	}
	var names []string
	for archive := tar.NewReader(&out); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	want := []string{".holdfast-copy.json", "#innodb_redo/", "#innodb_redo/#ib_redo6", "app/", "app/orders.sdi", "empty/", "ib_buffer_pool", "mysql_upgrade_history"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := writeCopy(ended, newData(t), about, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that is not wanted any more: %v", err)
	}
	linked := newData(t)
	if err := os.Symlink("/elsewhere", filepath.Join(linked, "other")); err != nil {
		t.Fatal(err)
	}
	if err := writeCopy(t.Context(), linked, about, io.Discard); !backup.InVain(err) {
		t.Errorf("a table outside of the data directory: %v", err)
	}
}

func TestFactsOfACopy(t *testing.T) {
	facts, err := about.facts()
	want := backup.Facts{Version: "9.7.4", SystemIdentifier: groupName, Start: executed, End: executed, Ended: time.UnixMicro(1_700_000_000_123_456).UTC()}
	if err != nil || facts != want {
		t.Errorf("%+v, %v", facts, err)
	}
}

// Damage is found in what is read back, and no other try is made.
func TestVerifyCopyRefuses(t *testing.T) {
	newTar := func(files ...string) []byte {
		var out bytes.Buffer
		archive := tar.NewWriter(&out)
		for i := 0; i < len(files); i += 2 {
			if err := writeEntry(archive, files[i], int64(len(files[i+1])), strings.NewReader(files[i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	const says = ".holdfast-copy.json"
	cases := []struct {
		name string
		copy []byte
		want string
	}{
		{"a copy that does not say what it is", newTar("ibdata1", "x"), "begins with ibdata1"},
		{"a copy of a newer form", newTar(says, `{"format":2}`), "has the format 2"},
		{"a description that is none", newTar(says, `{`), "does not say what it is"},
		{"no tablespaces", newTar(says, `{"format":1}`), "ibdata1 is missing"},
		{"a tablespace that is none", newTar(says, `{"format":1}`, "app/orders.ibd", strings.Repeat("x", 100)), "file app/orders.ibd of the copy: page 0"},
	}
	for _, c := range cases {
		_, err := (&Source{}).VerifyCopy(t.Context(), bytes.NewReader(c.copy))
		if !backup.InVain(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A stream that breaks off is tried again.
	whole := newTar(says, `{"format":1}`, "ibdata1", strings.Repeat("x", 2000))
	if _, err := (&Source{}).VerifyCopy(t.Context(), bytes.NewReader(whole[:1200])); err == nil || backup.InVain(err) {
		t.Errorf("half of a stream: %v", err)
	}
}
