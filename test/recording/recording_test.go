package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A recording of a command has what it printed, with the times, and reads back as it was.
func TestRecord(t *testing.T) {
	var echo strings.Builder
	recorded, err := record([]string{"sh", "-c", `echo first; sleep 0.2; printf '\033[1m==> <second>\033[0m\n' >&2`}, "a title", &echo)
	if err != nil {
		t.Fatal(err)
	}
	lines := recorded.lines()
	if len(lines) != 2 || lines[0].text != "first" || lines[1].text != "==> <second>" || lines[0].bold || !lines[1].bold {
		t.Fatalf("the lines are %+v", lines)
	}
	if lines[1].seconds-lines[0].seconds < 0.2 {
		t.Errorf("the second line is at %f, the first at %f", lines[1].seconds, lines[0].seconds)
	}
	if !strings.Contains(echo.String(), "first") {
		t.Errorf("it was not shown: %q", echo.String())
	}
	read, err := decode(string(recorded.encode()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(recorded.lines(), read.lines(), cmp.AllowUnexported(line{})); diff != "" || read.title != "a title" {
		t.Errorf("%q: %s", read.title, diff)
	}
}

// A command that fails leaves no recording.
func TestRecordOfFailure(t *testing.T) {
	out := t.TempDir() + "/failed.cast"
	if err := run([]string{"record", "-out", out, "--", "sh", "-c", "echo no; exit 3"}); err == nil {
		t.Error("it is recorded")
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
}

// A line that is printed in pieces is one line, which appears with its first piece.
func TestLines(t *testing.T) {
	c := cast{events: []event{{1, "wait"}, {2, "ing\nnext\n"}, {3, "\n"}}}
	want := []line{{seconds: 1, text: "waiting"}, {seconds: 2, text: "next"}, {seconds: 3}}
	if diff := cmp.Diff(want, c.lines(), cmp.AllowUnexported(line{})); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{"", "{}", `{"version":1}`, "{\"version\":2}\nno event"} {
		if _, err := decode(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

// The drawing is well-formed, escapes the text, and shows lines when they were printed.
func TestDraw(t *testing.T) {
	svg := draw(cast{title: `of "a" <drift>`, began: time.Unix(0, 0), events: []event{{0, "a & b\n"}, {4, "<c>\n"}}})
	for reader := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := reader.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
	for _, want := range []string{"a &amp; b", "&lt;c&gt;", "recorded 1970-01-01 00:00 UTC", "@keyframes l1{0%,50.000%{opacity:0}", ";animation:8.00s", "prefers-reduced-motion:reduce"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in %s", want, svg)
		}
	}
}
