package server

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/process"
)

// FindPrograms looks for PostgreSQL where images put it: on the path, or in
// Debian's place.
func FindPrograms() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) != 1 {
		return "", errors.New("the image holds no PostgreSQL, or several: postgres must be on the path")
	}
	return filepath.Dir(found[0]), nil
}

// Programs are PostgreSQL's.
type Programs struct {
	process.Programs
	// Major version of the programs, such as 17; 0 while it is not read.
	Major int
}

// ReadVersion of the programs, such as 17.4, and its major part.
func (p Programs) ReadVersion(ctx context.Context) (string, int, error) {
	out, err := p.Run(ctx, "postgres", "--version")
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
	return "", 0, fmt.Errorf("postgres says an unknown version: %s", process.LastLine(out))
}
