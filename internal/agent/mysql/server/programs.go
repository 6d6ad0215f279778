package server

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/parameters"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
)

// FindPrograms looks for the directory of mysqld.
func FindPrograms() (string, error) {
	path, err := exec.LookPath("mysqld")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/mysqld")
	}
	if err != nil {
		return "", errors.New("the image holds no MySQL: mysqld must be on the path")
	}
	return filepath.Dir(path), nil
}

// Programs are MySQL's.
type Programs struct{ process.Programs }

var versionLine = regexp.MustCompile(`\bVer (\d+\.\d+\.\d+\S*)`)

// ReadVersion of the programs: as they say it, and its parts.
func (p Programs) ReadVersion(ctx context.Context) (string, mysqlversion.Version, error) {
	out, err := p.Run(ctx, "mysqld", "--no-defaults", "--version")
	if err != nil {
		return "", mysqlversion.Version{}, err
	}
	return parseVersion(out)
}

// parseVersion reads "/usr/sbin/mysqld  Ver 9.7.4 for Linux on x86_64 (…)".
func parseVersion(out string) (string, mysqlversion.Version, error) {
	if match := versionLine.FindStringSubmatch(out); match != nil {
		if version, ok := mysqlversion.Parse(match[1]); ok {
			return match[1], version, nil
		}
	}
	return "", mysqlversion.Version{}, fmt.Errorf("mysqld says an unknown version: %s", process.LastLine(out))
}

// checkLimit is how long mysqld may take to check its settings.
const checkLimit = 20 * time.Second

// CheckSettings has mysqld check a file of settings. It fails with a *parameters.Refusal,
// and returns the settings that would be taken with another value. Settings of plugins
// are not checked.
func (p Programs) CheckSettings(ctx context.Context, file string) (adjusted map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var warnings string
	_, err = p.RunHeard(ctx, func(line string) { warnings += line + "\n" }, "mysqld", "--defaults-file="+file, "--validate-config", "--log-error-verbosity=2")
	var failed *process.Failure
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &failed):
		return nil, &parameters.Refusal{Message: settings.DescribeRefusal(failed.Stderr)}
	case err != nil:
		return nil, err
	}
	return settings.FindAdjusted(warnings), nil
}

// hasty has mysqld wait for the disk only when it shuts down, which writes and syncs all: what an
// interrupted call left is made anew, so there is nothing to recover meanwhile.
var hasty = []string{"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF"}

// MakeData has mysqld make a new data directory. The directory must not exist. It is on the
// disk when the call returns without an error.
func (p Programs) MakeData(ctx context.Context, file, dir string) error {
	args := append([]string{"--defaults-file=" + file, "--datadir=" + dir, "--initialize-insecure"}, hasty...)
	_, err := p.Run(ctx, "mysqld", args...)
	var failed *process.Failure
	if errors.As(err, &failed) {
		return fmt.Errorf("make the data directory: %s: %w", settings.DescribeRefusal(failed.Stderr), failed.Err)
	}
	return err
}
