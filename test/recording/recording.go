// Package main records what a command prints, with times, and draws the recording.
//
//	go run ./recording record -out drift.cast -title "…" -- test/demo/drift.sh
//	go run ./recording render -in drift.cast -out drift.svg
//
// A recording is an asciicast of version 2: a line of JSON for its head, and one for each
// piece of output. It plays in asciinema as well.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// cast is a recording.
type cast struct {
	title  string
	began  time.Time
	events []event
}

// event is output that appeared seconds after the begin.
type event struct {
	seconds float64
	text    string
}

// head is the first line of an asciicast.
type head struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Timestamp int64  `json:"timestamp"`
	Title     string `json:"title,omitempty"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("say record or render")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	in := flags.String("in", "", "the recording to draw")
	out := flags.String("out", "", "the file to write")
	title := flags.String("title", "", "what is recorded")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "record":
		recorded, err := record(flags.Args(), *title, os.Stdout)
		if err != nil {
			return err
		}
		return os.WriteFile(*out, recorded.encode(), 0o600)
	case "render":
		text, err := os.ReadFile(*in)
		if err != nil {
			return err
		}
		read, err := decode(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", *in, err)
		}
		return os.WriteFile(*out, []byte(draw(read)), 0o600)
	}
	return fmt.Errorf("%s is neither record nor render", args[0])
}

// record runs a command, and copies to echo what it prints. A command that fails is not
// recorded.
func record(command []string, title string, echo io.Writer) (cast, error) {
	if len(command) == 0 {
		return cast{}, errors.New("name a command after --")
	}
	c := cast{title: title, began: time.Now()}
	writer := &eventWriter{cast: &c, echo: echo}
	run := exec.Command(command[0], command[1:]...)
	run.Stdout, run.Stderr = writer, writer
	if err := run.Run(); err != nil {
		return cast{}, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return c, nil
}

// eventWriter makes an event of each write.
type eventWriter struct {
	mu   sync.Mutex
	cast *cast
	echo io.Writer
}

func (w *eventWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cast.events = append(w.cast.events, event{time.Since(w.cast.began).Seconds(), string(p)})
	return w.echo.Write(p)
}

// encode writes the recording as an asciicast.
func (c cast) encode() []byte {
	width, height := size(c.lines())
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(head{Version: 2, Width: width, Height: height, Timestamp: c.began.Unix(), Title: c.title})
	for _, e := range c.events {
		// A terminal needs the carriage to return.
		_ = encoder.Encode([]any{e.seconds, "o", strings.ReplaceAll(e.text, "\n", "\r\n")})
	}
	return []byte(text.String())
}

// decode reads an asciicast.
func decode(text string) (cast, error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	lines.Scan()
	var first head
	if err := json.Unmarshal(lines.Bytes(), &first); err != nil || first.Version != 2 {
		return cast{}, fmt.Errorf("this is no asciicast of version 2: %w", err)
	}
	c := cast{title: first.Title, began: time.Unix(first.Timestamp, 0)}
	for lines.Scan() {
		var e event
		var kind string
		if err := json.Unmarshal(lines.Bytes(), &[]any{&e.seconds, &kind, &e.text}); err != nil {
			return cast{}, err
		}
		if kind == "o" {
			e.text = strings.ReplaceAll(e.text, "\r\n", "\n")
			c.events = append(c.events, e)
		}
	}
	return c, lines.Err()
}
