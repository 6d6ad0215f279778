package postgres

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/member"
)

// NewCommand runs the agent in its pod. It stands under "agent".
func NewCommand(version string) *cobra.Command {
	return member.NewCommand("postgres", "Run PostgreSQL as a member of a cluster", version, func(ctx context.Context, pod member.Pod) error {
		o, err := optionsIn(pod)
		if err != nil {
			return err
		}
		return Run(ctx, o)
	})
}

// findPrograms looks for PostgreSQL where images put it: on the path, or in
// Debian's place.
func findPrograms() (string, error) {
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
