// Command cluster runs a real Kubernetes of three nodes on this machine, for
// tests: real kubelets, containerd and kube-proxy in network namespaces, no
// registry, nothing that leaves the machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/lifecycle"
)

// options are the flags that all commands share.
type options struct {
	dir        string
	kubeconfig string
	kubernetes string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes of three nodes on this machine, for tests",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return o.setDefaults()
		},
	}
	root.PersistentFlags().StringVar(&o.dir, "dir", ".cluster", "state folder")
	root.PersistentFlags().StringVar(&o.kubeconfig, "kubeconfig", "", "where up writes the kubeconfig (default DIR/kubeconfig)")
	root.PersistentFlags().StringVar(&o.kubernetes, "kubernetes", "", "minor version of Kubernetes, such as 1.36 (default: that of kube/go.mod; a running cluster keeps its own)")
	root.AddCommand(upCommand(o), downCommand(o), statusCommand(o), buildCommand(o), assetsCommand(o), versionsCommand(),
		imagesCommand(o), etcdCommand(), mysqlCommand(), postgresCommand(), programsCommand(), loadCommand(), tagCommand(), packCommand(), fluxCommand(o), auditCommand(o), diskCommand(o), provisionCommand(o))
	root.AddCommand(nodeCommands(o)...)
	root.AddCommand(faultCommands(o)...)
	return root
}

func (o *options) setDefaults() error {
	absolute, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	o.dir = absolute
	if o.kubeconfig == "" {
		o.kubeconfig = o.stateDir().AdminKubeconfig()
	}
	return nil
}

func (o *options) stateDir() layout.Dir { return layout.Dir(o.dir) }

func upCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or repair what is missing of it; write the kubeconfig when it is ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lifecycle.RunExclusively(func() error {
				return lifecycle.StartCluster(cmd.Context(), o.stateDir(), o.kubeconfig, o.kubernetes)
			})
		},
	}
}

func downCommand(o *options) *cobra.Command {
	var whichever bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove its state",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return lifecycle.RunExclusively(func() error {
				if owner, ok := lifecycle.FindOwner(); whichever && ok {
					o.dir = string(owner)
				}
				if err := lifecycle.StopCluster(o.stateDir()); err != nil {
					return err
				}
				return removeIfThere(o.kubeconfig)
			})
		},
	}
	cmd.Flags().BoolVar(&whichever, "any", false, "whichever cluster this machine has, wherever its state is")
	return cmd
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say what runs, and in how much memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lifecycle.WriteStatus(cmd.Context(), o.stateDir(), cmd.OutOrStdout())
		},
	}
}
