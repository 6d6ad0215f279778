package postgres

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
		Use:   "postgres",
		Short: "Run PostgreSQL as a member of a cluster",
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
