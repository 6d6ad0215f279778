package postgres

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
)

// programs runs what comes with PostgreSQL.
type programs struct {
	dir       string
	processes *member.Processes
}

// environment of PostgreSQL's programs: messages in English, for we read them,
// and none of the image's own settings.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "HOME", "LD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func (p programs) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, name), args...)
	cmd.Env = environment()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// failure is a program that failed, with what it wrote to its standard error.
type failure struct {
	program string
	err     error
	stderr  string
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: %v: %s", f.program, f.err, lastLine(f.stderr))
}

func (f *failure) Unwrap() error { return f.err }

// run runs a program to its end and returns its standard output.
func (p programs) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := p.command(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	wait, err := p.processes.Start(cmd)
	if err == nil {
		err = wait()
	}
	if err != nil {
		return stdout.String(), &failure{program: name, err: err, stderr: stderr.String()}
	}
	return stdout.String(), nil
}

// version of the programs, such as 17.4, and its major part.
func (p programs) version(ctx context.Context) (string, int, error) {
	out, err := p.run(ctx, "postgres", "--version")
	if err != nil {
		return "", 0, err
	}
	return parseVersion(out)
}

// parseVersion reads "postgres (PostgreSQL) 17.4 (Debian …)".
func parseVersion(out string) (string, int, error) {
	_, rest, found := strings.Cut(out, ") ")
	if found {
		version := strings.Fields(rest)[0]
		digits, _, _ := strings.Cut(version, ".")
		if len(digits) > 2 { // a development version, such as 18beta1
			digits = digits[:2]
		}
		if major, err := strconv.Atoi(digits); err == nil {
			return version, major, nil
		}
	}
	return "", 0, fmt.Errorf("postgres says an unknown version: %s", lastLine(out))
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndex(s, "\n")+1:]
}
