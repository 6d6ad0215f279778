package wal

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// laid writes the texts of an archive, by their path below it.
func laid(t *testing.T, stored string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(stored, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// A recovery follows the newest timeline that came of its backup, and knows of
// what lies beside it.
func TestTheWay(t *testing.T) {
	seg := func(timeline uint32, number uint64) string {
		return fmt.Sprintf("%08X/%s.zst", timeline, Segment{timeline, number}.Name(usualSize))
	}
	history := func(timeline uint32) string { return fmt.Sprintf("%08X/%s", timeline, HistoryName(timeline)) }
	// 2 left 1 at 0/5000100; 3 left 1 before that, and 4 came of 2.
	files := map[string]string{
		seg(1, 4): "", seg(1, 5): "", seg(2, 5): "", seg(2, 6): "", seg(3, 4): "", seg(4, 7): "", "gaps/a-b": "{}", "owner": "{}",
		history(2): "1\t0/5000100\tpromoted\n", history(3): "1\t0/4000100\tpromoted\n", history(4): "1\t0/5000100\tx\n2\t0/7000000\tx\n",
	}
	cases := []struct {
		name     string
		change   map[string]string
		drop     string
		timeline uint32
		position string
		want     uint32
		beside   []uint32
		unknown  []uint32
		fails    string
	}{
		{"the newest counts", nil, "", 1, "0/4000200", 4, []uint32{3}, nil, ""},
		{"a backup before every turn", nil, "", 1, "0/4000050", 4, []uint32{3}, nil, ""},
		{"a backup at the turn", nil, "", 1, "0/5000100", 4, []uint32{3}, nil, ""},
		{"a backup after the turn is on a timeline that was left", nil, "", 1, "0/5000101", 1, []uint32{2, 3, 4}, nil, ""},
		{"a backup on a timeline that no member followed", nil, "", 3, "0/4000200", 3, []uint32{1, 2, 4}, nil, ""},
		{"a backup on the newest", nil, "", 4, "0/7000100", 4, []uint32{3}, nil, ""},
		{"log behind a turn", map[string]string{seg(1, 6): ""}, "", 1, "0/4000200", 4, []uint32{1, 3}, nil, ""},
		{"log that begins at a turn", map[string]string{seg(2, 7): ""}, "", 1, "0/4000200", 4, []uint32{2, 3}, nil, ""},
		{"promotions failed before they began their timelines 5 and 6", map[string]string{history(7): "1\t0/5000100\tx\n2\t0/7000000\tx\n4\t0/8000000\tx\n", seg(7, 8): ""}, "", 1, "0/4000200", 7, []uint32{3}, nil, ""},
		{"one failed after it stored files of its timeline 5", map[string]string{
			history(5): "1\t0/5000100\tx\n2\t0/7000000\tx\n4\t0/7800000\tx\n", seg(5, 7): "",
			history(6): "1\t0/5000100\tx\n2\t0/7000000\tx\n4\t0/8000000\tx\n", seg(6, 8): "",
		}, "", 1, "0/4000200", 6, []uint32{3, 5}, nil, ""},
		{"one failed after it stored WAL without its history", map[string]string{seg(5, 7): ""}, "", 1, "0/4000200", 4, []uint32{3, 5}, []uint32{5}, ""},
		{"a timeline that was only reserved has no history", map[string]string{history(5): "# reserved: this volume holds no data of this timeline\n"}, "", 1, "0/4000200", 4, []uint32{3}, nil, ""},
		{"a history that is not there", nil, history(4), 1, "0/4000200", 2, []uint32{3, 4}, []uint32{4}, ""},
		{"nor that of the backup", nil, history(4), 4, "0/7000100", 0, nil, nil, "lacks 00000004.history"},
		{"a history that is none", map[string]string{history(4): "nonsense"}, "", 1, "0/4000200", 0, nil, nil, "history"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, stored := archive(t)
			laid(t, stored, files)
			laid(t, stored, c.change)
			if c.drop != "" {
				if err := os.Remove(filepath.Join(stored, c.drop)); err != nil {
					t.Fatal(err)
				}
			}
			at, err := ParsePosition(c.position)
			if err != nil {
				t.Fatal(err)
			}
			way, err := a.FindWay(t.Context(), c.timeline, at)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%+v, %v", way, err)
				}
				return
			}
			if err != nil || way.Timeline != c.want || !slices.Equal(way.Unknown, c.unknown) {
				t.Errorf("%+v, %v", way, err)
			}
			beside, err := a.ListBeside(t.Context(), way)
			if diff := cmp.Diff(c.beside, beside); err != nil || diff != "" {
				t.Errorf("beside it: %v %s", err, diff)
			}
		})
	}
}

func TestBegin(t *testing.T) {
	for name, want := range map[string]string{"0000000200000001000000FF": "1/FF000000", "00000002.history": "", "000000020000000100000100": ""} {
		if got := StartOf(name); got != want {
			t.Errorf("%s begins at %q", name, got)
		}
	}
}

// What a recovery asks for comes from a socket: what is there, what is not, what
// no archive can have, and nothing but files of the WAL.
func TestSupply(t *testing.T) {
	a, stored := archive(t)
	if err := a.ClaimArchive(t.Context(), Owner{}); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "hf's") // a socket's path is short, and needs quotes
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(filepath.Join(data, "pg_wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	first, second, third := Segment{1, 1}.Name(usualSize), Segment{1, 2}.Name(usualSize), Segment{1, 3}.Name(usualSize)
	put(t, a, func() string { laid(t, dir, map[string]string{"x": "content"}); return filepath.Join(dir, "x") }(), first)
	laid(t, stored, map[string]string{"00000001/" + second + packedSuffix: "no archive", "gaps/g": fmt.Sprintf(`{"from":%q,"to":%q}`, third, third)})
	var fetched []string
	s := &Supply{Archive: a, Way: Way{Timeline: 1, From: 1}, Dir: data, Scratch: filepath.Join(dir, "scratch"), Fetched: func(name string) { fetched = append(fetched, name) }}
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go s.ServeSocket(t.Context(), listener)
	if got, want := s.RestoreCommand("/bin/hold fast", socket), "'/bin/hold fast' wal restore --socket '"+strings.ReplaceAll(socket, "'", `'\''`)+"' %f %p"; got != want {
		t.Errorf("the command is %s", got)
	}
	ask := func(asked string) (code int) {
		cmd := NewCommand()
		cmd.SetArgs(append([]string{"restore", "--socket", socket}, strings.Fields(asked)...))
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if ended := (*Exit)(nil); errors.As(cmd.Execute(), &ended) {
			return ended.Code
		}
		return 0
	}
	if code := ask(first + " pg_wal/RECOVERYXLOG"); code != 0 || !slices.Equal(fetched, []string{first}) {
		t.Errorf("%d, and there is %v", code, fetched)
	}
	if got, err := os.ReadFile(filepath.Join(data, "pg_wal", "RECOVERYXLOG")); string(got) != "content" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if code := ask("00000009.history pg_wal/RECOVERYHISTORY"); code != exitMissing || s.FetchError() != nil {
		t.Errorf("what is not there: %d, %v", code, s.FetchError())
	}
	for _, c := range []struct{ asked, want string }{{second, "cannot be unpacked"}, {third, "discarded"}} {
		code := ask(c.asked + " pg_wal/X")
		if hole := s.FindHole(t.Context()); code != exitMissing || hole == nil || !strings.Contains(hole.Error(), c.want) || s.FetchError() != nil {
			t.Errorf("what no archive can have: %d, %v, %v", code, hole, s.FetchError())
		}
	}
	for _, asked := range []string{first + " ../../X", first + " /tmp/X", "PG_VERSION pg_wal/X"} {
		if code := ask(asked); code != exitFatal || s.FetchError() != nil {
			t.Errorf("%s: %d", asked, code)
		}
	}
	if err := errors.Join(os.Rename(stored, stored+".away"), os.WriteFile(stored, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if code := ask(first + " pg_wal/X"); code != exitFatal || s.FetchError() == nil {
		t.Errorf("a store that is away: %d, %v", code, s.FetchError())
	}
}
