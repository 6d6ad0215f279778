package etcd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/agent"
)

// NewCommand runs the agent in its pod. It stands under "agent".
func NewCommand(version string) *cobra.Command {
	return agent.NewCommand("etcd", "Run etcd as a member of a cluster", version, func(ctx context.Context, pod agent.Pod) error {
		o, err := optionsIn(pod)
		if err != nil {
			return err
		}
		return Run(ctx, o)
	})
}

// findPrograms finds etcd on the path, and where its own image has it.
func findPrograms() (string, error) {
	if path, err := exec.LookPath("etcd"); err == nil {
		return filepath.Dir(path), nil
	}
	const dir = "/usr/local/bin"
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err != nil {
		return "", errors.New("the image holds no etcd: it must be on the path")
	}
	return dir, nil
}
