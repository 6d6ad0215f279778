package main

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

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

// diskCommand is about volumes whose writes a test can stop.
func diskCommand(o *options) *cobra.Command {
	command := &cobra.Command{Use: "disk", Short: "Volumes on file systems of their own, whose writes can be stopped"}
	add := func(use, short string, arguments int, run func(disk storage.Disk, args []string) error) {
		command.AddCommand(&cobra.Command{
			Use: use, Short: short, Args: cobra.ExactArgs(arguments),
			RunE: func(_ *cobra.Command, args []string) error {
				disk, err := storage.NewDisk(o.stateDir().VolumesDir(), args[0])
				if err != nil {
					return err
				}
				return run(disk, args[1:])
			},
		})
	}
	add("make NAME SIZE", "Make a disk; a volume may be the folder volumes/disk-NAME/data", 2, func(disk storage.Disk, args []string) error {
		size, err := resource.ParseQuantity(args[0])
		if err != nil {
			return err
		}
		return disk.Make(size)
	})
	add("remove NAME", "Remove a disk with its content", 1, func(disk storage.Disk, _ []string) error { return disk.Remove() })
	add("freeze NAME", "Have writes to a disk wait, and fsync", 1, func(disk storage.Disk, _ []string) error { return disk.Freeze() })
	add("thaw NAME", "Have writes to a disk go on", 1, func(disk storage.Disk, _ []string) error { return disk.Thaw() })
	return command
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
