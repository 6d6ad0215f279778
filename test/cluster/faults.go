package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/network"
	"github.com/holdfast-db/holdfast/test/cluster/internal/process"
)

// faultCommands are failures of a part of the cluster, and their ends.
func faultCommands(o *options) []*cobra.Command {
	return []*cobra.Command{
		dropCommand(),
		{
			Use:   "pass NODE NAME",
			Short: "End what drop NODE NAME began",
			Args:  cobra.ExactArgs(2),
			RunE: func(_ *cobra.Command, args []string) error {
				n, err := layout.FindNode(args[0])
				if err != nil {
					return err
				}
				return network.PassTraffic(n, args[1])
			},
		},
		{
			Use:   "pause PROGRAM",
			Short: "Have a program stand still, such as kube-apiserver, etcd or node-1-kubelet",
			Args:  cobra.ExactArgs(1),
			RunE:  func(_ *cobra.Command, args []string) error { return process.Pause(o.stateDir(), args[0]) },
		},
		{
			Use:   "resume PROGRAM",
			Short: "Have a program go on that stands still",
			Args:  cobra.ExactArgs(1),
			RunE:  func(_ *cobra.Command, args []string) error { return process.Resume(o.stateDir(), args[0]) },
		},
	}
}

func dropCommand() *cobra.Command {
	var from, to []string
	var ports []uint
	var both, own bool
	command := &cobra.Command{
		Use:   "drop NODE NAME",
		Short: "Drop traffic of a node's pods, by addresses; what pass NODE NAME ends",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := layout.FindNode(args[0])
			if err != nil {
				return err
			}
			drops := []network.Drop{{Sources: from, Destinations: to, SourcePorts: ports}}
			if both {
				drops = append(drops, network.Drop{Sources: to, Destinations: from, DestinationPorts: ports})
			}
			return network.DropTraffic(n, args[1], own, drops...)
		},
	}
	command.Flags().StringSliceVar(&from, "from", nil, "addresses that send (default: every one)")
	command.Flags().StringSliceVar(&to, "to", nil, "addresses that receive (default: every one)")
	command.Flags().UintSliceVar(&ports, "from-ports", nil, "ports of TCP that --from sends from (default: all traffic)")
	command.Flags().BoolVar(&both, "both", false, "the other direction, too")
	command.Flags().BoolVar(&own, "own", false, "traffic of the node's own programs, too")
	return command
}
