package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/network"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
	"github.com/holdfast-db/holdfast/test/cluster/internal/storage"
)

// nodeCommands are the failures that a test can cause, and their ends.
func nodeCommands(o *options) []*cobra.Command {
	return []*cobra.Command{
		nodeCommand("cut", "Pull a node's network cable; what runs on it goes on", func(n layout.Node) error {
			return network.UnplugNode(n)
		}),
		nodeCommand("heal", "Plug a node's network cable in again", func(n layout.Node) error {
			return network.PlugIn(n)
		}),
		nodeCommand("stop", "Cut a node's power: nothing of it goes on, its network included", func(n layout.Node) error {
			return node.Stop(n)
		}),
		nodeCommand("start", "Boot a node that was stopped", func(n layout.Node) error {
			return node.Start(o.stateDir(), n, o.stateDir().ProgramsDir())
		}),
	}
}

func nodeCommand(name, short string, run func(layout.Node) error) *cobra.Command {
	return &cobra.Command{
		Use:   name + " NODE...",
		Short: short,
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, names []string) error {
			for _, name := range names {
				n, err := layout.FindNode(name)
				if err != nil {
					return err
				}
				if err := run(n); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// provisionCommand is what up starts beside the control plane.
func provisionCommand(o *options) *cobra.Command {
	var volumes string
	command := &cobra.Command{
		Use:    "provision",
		Short:  "Provision and grow volumes until stopped",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return storage.Run(cmd.Context(), o.kubeconfig, volumes)
		},
	}
	command.Flags().StringVar(&volumes, "volumes", "", "folder of the volumes")
	return command
}
