package mysql

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/backup"
)

const (
	groupName = "5b8f3c1e-0000-5000-8000-000000000001"
	executed  = groupName + ":1-9"
)

var about = aboutCopy{Format: aboutFormat, Version: "9.7.4", Group: groupName, Executed: executed, EndedMicros: 1_700_000_000_123_456}

// A secondary is copied, and the primary only where it is alone.
func TestDescribeUnfit(t *testing.T) {
	view := func(states ...group.State) (view group.View) {
		for i, state := range states {
			view.Members = append(view.Members, group.Member{UUID: string(rune('a' + i)), State: state, Primary: i == 0})
		}
		return view
	}
	cases := []struct {
		name, uuid string
		view       group.View
		says       string
	}{
		{"a secondary", "B", view(group.Online, group.Online, group.Online), ""},
		{"the primary beside a secondary", "a", view(group.Online, group.Recovering, group.Online), "it leads"},
		{"the primary, alone", "a", view(group.Online), ""},
		{"the primary beside members that lack something", "a", view(group.Online, group.Recovering, group.Recovering), ""},
		{"a member that recovers", "b", view(group.Online, group.Recovering, group.Online), "it is not online"},
		{"a member that was expelled", "d", view(group.Online, group.Online, group.Online), "it is not online"},
		{"a member without a majority", "b", view(group.Unreachable, group.Online, group.Unreachable), "no majority"},
		{"a member whose primary is lost", "b", view(group.Unreachable, group.Online, group.Online), "no primary that is online"},
		{"half of a group", "b", view(group.Unreachable, group.Online), "no majority"},
		{"a member in no group", "a", view(group.Offline), "it is not online"},
		{"a member that lists none", "a", group.View{}, "it is not online"},
	}
	for _, c := range cases {
		if why := describeUnfit(c.view, c.uuid); (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: %q", c.name, why)
		}
	}
}

// A group that went on without lost members has a second name, and is the same system.
func TestIdentify(t *testing.T) {
	const second = "5b8f3c1e-0000-4000-8000-000000000002"
	cases := []struct {
		name, group string
		others      []string
		in, want    string
		says        string
	}{
		{"its first name", groupName, nil, groupName, groupName, ""},
		{"in other letters", strings.ToUpper(groupName), nil, groupName, strings.ToUpper(groupName), ""},
		{"its second name", groupName, []string{second}, second, groupName, ""},
		{"a name that the task does not have", groupName, nil, second, "", "and " + groupName + " is to be copied"},
		{"another group beside two names", groupName, []string{second}, "other", "", groupName + " or " + second},
		{"any", "", nil, second, second, ""},
	}
	for _, c := range cases {
		got, err := (&Source{Group: c.group, OtherNames: c.others}).identify(c.in)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && (!backup.InVain(err) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	if _, err := (&Source{Group: groupName}).identify(""); err == nil || backup.InVain(err) {
		t.Errorf("no group: %v", err)
	}
}

// newData is a data directory as a server leaves it, without tablespaces.
func newData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"ib_buffer_pool", "mysql_upgrade_history", "#innodb_redo/#ib_redo6", "app/orders.sdi",
		"relay_log/t.ibd", "binlog/t.ibd", "ibtmp1_old/t.ibd", "app/auto.cnf", "relay1.ibd", "binlog.ibd", "ibtmp3.ibd", "relay.ibu", ".x.ibd", // databases, tablespaces and a table of such names
		"auto.cnf", "mysqld-auto.cnf", "server-key.pem", "#innodb_temp/temp_1.ibt", "#clone/#status", "ibtmp1", "ibtmp2", "#innodb_redo/#ib_redo7_tmp",
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
	want := []string{".holdfast-copy.json", "#innodb_redo/", "#innodb_redo/#ib_redo6", ".x.ibd", "app/", "app/auto.cnf", "app/orders.sdi", "binlog/", "binlog/t.ibd", "binlog.ibd",
		"empty/", "ib_buffer_pool", "ibtmp1_old/", "ibtmp1_old/t.ibd", "ibtmp3.ibd", "mysql_upgrade_history", "relay.ibu", "relay1.ibd", "relay_log/", "relay_log/t.ibd"}
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

// newTablespace is a file of one page that is sound.
func newTablespace() string {
	page := make([]byte, 16<<10)
	page[38+8+3] = 1 // pages that it must have
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Checksum(page[4:26], castagnoli) ^ crc32.Checksum(page[38:len(page)-8], castagnoli)
	binary.BigEndian.PutUint32(page, sum)
	binary.BigEndian.PutUint32(page[len(page)-8:], sum)
	return string(page)
}

// Damage is found in what is read back, and no other try is made.
func TestVerifyCopyRefuses(t *testing.T) {
	const says = ".holdfast-copy.json"
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
	whole := func(about string, files ...string) []byte {
		all := []string{says, about}
		for _, name := range []string{"ibdata1", "mysql.ibd", "undo_001", "undo_002"} {
			all = append(all, name, newTablespace())
		}
		return newTar(append(all, files...)...)
	}
	const listed = `{"format":1,"executed":"` + executed + `","tablespaces":["app/orders.ibd","mysql.ibd"]}`
	if facts, err := (&Source{}).VerifyCopy(t.Context(), bytes.NewReader(whole(listed, "app/orders.ibd", newTablespace()))); err != nil || facts.End != executed {
		t.Errorf("a whole copy: %+v, %v", facts, err)
	}
	cases := []struct {
		name string
		copy []byte
		want string
	}{
		{"a table that is missing", whole(listed), "app/orders.ibd is missing"},
		{"a table that is a directory's name", whole(listed, "app/orders.ibd/x", "x"), "app/orders.ibd is missing"},
		{"half of a set", whole(`{"format":1,"executed":"x"}`), "read the transactions"},
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
	broken := newTar(says, `{"format":1}`, "ibdata1", strings.Repeat("x", 2000))
	if _, err := (&Source{}).VerifyCopy(t.Context(), bytes.NewReader(broken[:1200])); err == nil || backup.InVain(err) {
		t.Errorf("half of a stream: %v", err)
	}
}
