package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// NewCommand runs the agent in its pod, with the environment that the operator
// gives it. It stands under "agent".
func NewCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "etcd",
		Short: "Run etcd as a member of a cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := optionsFromEnv(version)
			if err != nil {
				return err
			}
			o.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("pod", o.Identity.Pod)
			config, err := rest.InClusterConfig()
			if err != nil {
				return fmt.Errorf("find the API server: %w", err)
			}
			config.UserAgent = "holdfast-agent/" + version
			if o.Client, err = kubernetes.NewForConfig(config); err != nil {
				return fmt.Errorf("set up the API client: %w", err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return Run(ctx, o)
		},
	}
}

// findPrograms looks for etcd on the path, and where its own image has it.
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
