// Package process runs the programs of an image, and the database server among
// them.
package process

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Programs runs what an image brings for its database.
type Programs struct {
	// Dir holds the programs.
	Dir       string
	Processes *Processes
}

// listEnvironment of the programs: messages in English, for we read them, and none
// of the image's own settings.
func listEnvironment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "HOME", "LD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (p Programs) newCommand(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.Dir, name), args...)
	cmd.Env = listEnvironment()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Failure is a program that failed, with what it wrote to its standard error.
type Failure struct {
	Program string
	Err     error
	Stderr  string
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s: %v: %s", f.Program, f.Err, LastLine(f.Stderr))
}

func (f *Failure) Unwrap() error { return f.Err }

// Run runs a program to its end and returns its standard output. It fails with
// a *Failure.
func (p Programs) Run(ctx context.Context, name string, args ...string) (string, error) {
	return p.RunHeard(ctx, nil, name, args...)
}

// RunHeard is Run, with every line of the standard error given to heard as it
// comes.
func (p Programs) RunHeard(ctx context.Context, heard func(line string), name string, args ...string) (string, error) {
	cmd := p.newCommand(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if heard != nil {
		cmd.Stderr = io.MultiWriter(&stderr, &lineWriter{heard: heard})
	}
	wait, err := p.Processes.Start(cmd)
	if err == nil {
		err = wait()
	}
	if err != nil {
		return stdout.String(), &Failure{Program: name, Err: err, Stderr: stderr.String()}
	}
	return stdout.String(), nil
}

// lineWriter gives every line that is written to heard.
type lineWriter struct {
	heard func(line string)
	rest  string
}

func (w *lineWriter) Write(data []byte) (int, error) {
	w.rest += string(data)
	for {
		line, rest, found := strings.Cut(w.rest, "\n")
		if !found {
			return len(data), nil
		}
		w.rest = rest
		w.heard(line)
	}
}

// LastLine of a text that is not blank.
func LastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndex(s, "\n")+1:]
}
