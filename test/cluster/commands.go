package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
)

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the cluster's programs; print the folder of kube-apiserver, etcd and kubectl",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := artifact.CoreDNS(cmd.Context()); err != nil {
				return err
			}
			return printAssets(cmd)
		},
	}
}

func assetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print the folder of kube-apiserver, etcd and kubectl, building them when missing",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printAssets(cmd) },
	}
}

func printAssets(cmd *cobra.Command) error {
	folder, err := artifact.Kubernetes(cmd.Context())
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), folder)
	return nil
}

func loadCommand(_ *options) *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE.tar...",
		Short: "Give image archives (docker or OCI) to all nodes",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, archives []string) error {
			for _, archive := range archives {
				for _, n := range layout.Nodes() {
					if err := node.LoadImage(n, archive); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

func packCommand() *cobra.Command {
	var ref, binary, out string
	command := &cobra.Command{
		Use:   "pack --name REF --binary FILE [--out ARCHIVE.tar]",
		Short: "Pack a static program as an image: /holdfast, run by user 65532, and nothing else",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ref == "" || binary == "" {
				return errors.New("pack needs --name and --binary")
			}
			if out == "" {
				out = binary + ".tar"
			}
			if err := image.Pack(image.Binary{Ref: ref, File: binary, Path: "/holdfast", User: "65532:65532"}, out); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), out)
			return nil
		},
	}
	command.Flags().StringVar(&ref, "name", "", "name of the image, with its tag")
	command.Flags().StringVar(&binary, "binary", "", "the program")
	command.Flags().StringVar(&out, "out", "", "the archive (default: the program's name with .tar)")
	return command
}

func imagesCommand(_ *options) *cobra.Command { return &cobra.Command{Use: "images"} }
func auditCommand(_ *options) *cobra.Command  { return &cobra.Command{Use: "audit"} }
