package postgres

import (
	"archive/tar"
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/backup"
)

// programControl reads pg_control.
const programControl = "pg_controldata"

// clock is the latest time that a copy has, by either clock: that of the member that
// was copied, and that of the primary, which wrote the WAL and by which a moment is
// named. Whatever was committed in the copy, was by then.
type clock struct{ at time.Time }

func (c *clock) noteTime(at time.Time) {
	if at.After(c.at) {
		c.at = at.UTC()
	}
}

// noteHeader takes the time of a sign of WAL that PostgreSQL made up as it sent it: by the clock
// of the member, in whole seconds.
func (c *clock) noteHeader(header *tar.Header) {
	if header.Typeflag == tar.TypeReg && path.Dir(path.Clean(header.Name)) == statusDir {
		c.noteTime(header.ModTime.Add(time.Second))
	}
}

// saysEnded is how pg_waldump writes of the end of a transaction, by the clock
// of the primary.
var saysEnded = regexp.MustCompile(`desc: (?:COMMIT|ABORT|PREPARE)[A-Z_]*\b.*?([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?) UTC`)

// readTransactions notes the transactions that a part of the WAL ends.
func (c *clock) readTransactions(dump io.Reader) error {
	lines := bufio.NewReader(dump)
	for {
		line, err := lines.ReadString('\n')
		if found := saysEnded.FindStringSubmatch(line); found != nil {
			if at, err := time.Parse("2006-01-02 15:04:05.999999", found[1]); err == nil {
				c.noteTime(at)
			}
		}
		if err == io.EOF { //nolint:errorlint // as it is documented
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// environment of programs whose words are read.
var environment = []string{"LC_ALL=C", "TZ=UTC"}

// readWAL reads a range of the WAL, each record of it, and notes what it ends.
func (s *Source) readWAL(ctx context.Context, logs string, r walRange, ended *clock) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Programs, programWALDump), "--rmgr=Transaction", "--path="+logs, //nolint:gosec // the image's own
		fmt.Sprintf("--timeline=%d", r.Timeline), "--start="+r.Start, "--end="+r.End)
	wrong := &strings.Builder{}
	cmd.Env, cmd.Stderr = environment, wrong
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return backup.ExplainRefusal(ctx, programWALDump, err, "")
	}
	readErr := ended.readTransactions(out)
	if err := cmd.Wait(); err != nil {
		return backup.ExplainRefusal(ctx, programWALDump, err, lastLine(wrong.String()))
	}
	return readErr
}

// noteCheckpoint takes the time of the latest checkpoint that the copy knows: the primary
// reads its clock, in whole seconds, before it settles where one begins, so
// what lies before that was committed by then.
func (s *Source) noteCheckpoint(ctx context.Context, logs string, ended *clock) error {
	dir := filepath.Join(logs, "control")
	file := filepath.Join(dir, filepath.FromSlash(controlName))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(logs, path.Base(controlName)), file); err != nil {
		return fmt.Errorf("look at %s of the copy: %w", controlName, err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.Programs, programControl), "-D", dir) //nolint:gosec // the image's own
	cmd.Env = environment
	out, err := cmd.Output()
	if err != nil {
		return backup.ExplainRefusal(ctx, programControl, err, lastLine(string(out)))
	}
	for line := range strings.Lines(string(out)) {
		if says, found := strings.CutPrefix(line, "Time of latest checkpoint:"); found {
			at, err := time.Parse(time.ANSIC, strings.TrimSpace(says))
			if err != nil {
				return fmt.Errorf("%s says when the latest checkpoint was, and not how: %w", programControl, err)
			}
			ended.noteTime(at.Add(time.Second))
		}
	}
	return nil
}
