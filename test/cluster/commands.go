package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/test/cluster/internal/artifact"
	"github.com/holdfast-db/holdfast/test/cluster/internal/image"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/lifecycle"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
)

func buildCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the cluster's programs; print the folder of kube-apiserver, etcd and kubectl",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := artifact.CoreDNS(cmd.Context()); err != nil {
				return err
			}
			return printAssets(cmd, o.kubernetes)
		},
	}
}

func assetsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "assets",
		Short: "Print the folder of kube-apiserver, etcd and kubectl, building them when missing",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return printAssets(cmd, o.kubernetes) },
	}
}

func printAssets(cmd *cobra.Command, minor string) error {
	folder, err := artifact.BuildKubernetes(cmd.Context(), minor)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), folder)
	return nil
}

// versionsCommand lists what --kubernetes may be.
func versionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "versions",
		Short: "Print the minor versions of Kubernetes that a cluster can be made of, the oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			minors, err := artifact.ListKubernetes()
			for _, minor := range minors {
				fmt.Fprintln(cmd.OutOrStdout(), minor)
			}
			return err
		},
	}
}

func loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE.tar...",
		Short: "Give image archives (docker or OCI) to all nodes",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, archives []string) error {
			return node.OnAll(func(n layout.Node) error {
				for _, archive := range archives {
					if err := node.LoadImage(n, archive); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func tagCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tag IMAGE:TAG OTHER:TAG",
		Short: "Let another name stand for an image on all nodes, as a registry's moving tag does",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, refs []string) error {
			return node.OnAll(func(n layout.Node) error {
				if err := node.TagImage(n, refs[0], refs[1]); err != nil {
					return err
				}
				return node.TagDigest(n, refs[1])
			})
		},
	}
}

func packCommand() *cobra.Command {
	var ref, binary, folder, out string
	var oci, labels map[string]string
	command := &cobra.Command{
		Use:   "pack --name REF --binary FILE [--out ARCHIVE.tar], or pack --oci amd64=FILE,arm64=FILE [--name REF] --out ARCHIVE.tar, or pack --folder FOLDER [--name REF] --out ARCHIVE.tar",
		Short: "Pack a static program as an image: /holdfast, run by user 65532, and nothing else; or a folder of files, for amd64 and arm64",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(oci) > 0 && out != "" {
				return image.PackOCI(image.Binary{Ref: ref, Path: "/holdfast", User: "65532:65532", Labels: labels}, oci, out)
			}
			if folder != "" && out != "" {
				return image.PackFolder(ref, folder, labels, out)
			}
			if ref == "" || binary == "" {
				return errors.New("pack needs --name and --binary, or --oci and --out, or --folder and --out")
			}
			if out == "" {
				out = binary + ".tar"
			}
			if err := image.PackBinary(image.Binary{Ref: ref, File: binary, Path: "/holdfast", User: "65532:65532"}, out); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), out)
			return nil
		},
	}
	command.Flags().StringVar(&ref, "name", "", "name of the image, with its tag")
	command.Flags().StringVar(&binary, "binary", "", "the program")
	command.Flags().StringToStringVar(&oci, "oci", nil, "the program by GOARCH: an OCI archive for all of them, for tools that push images")
	command.Flags().StringVar(&folder, "folder", "", "files for an image that no program runs, such as a bundle of OLM")
	command.Flags().StringToStringVar(&labels, "label", nil, "label of the images of an OCI archive, such as org.opencontainers.image.version=v0.1.0")
	command.Flags().StringVar(&out, "out", "", "the archive (default: the program's name with .tar)")
	return command
}

func fluxCommand(o *options) *cobra.Command {
	var buildOnly bool
	command := &cobra.Command{
		Use:   "flux",
		Short: "Run Flux's kustomize-controller on the cluster, building it when missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if buildOnly {
				_, err := artifact.BuildFlux(cmd.Context())
				return err
			}
			return lifecycle.RunExclusively(func() error { return lifecycle.StartFlux(cmd.Context(), o.stateDir()) })
		},
	}
	command.Flags().BoolVar(&buildOnly, "build-only", false, "do not run it")
	return command
}

// builders of images for tests: the databases' by engine, and the S3 store's.
var builders = map[string]func(ctx context.Context, lines []string, refresh bool, complaints io.Writer) ([]image.Image, error){
	"postgres": image.BuildPostgres,
	"etcd":     image.BuildEtcd,
	"mysql":    image.BuildMySQL,
	"s3":       image.BuildS3,
}

// imagesCommand builds images for tests and gives them to the nodes; the list of
// what there is lies in the state folder as images.json.
func imagesCommand(o *options) *cobra.Command {
	var refresh, buildOnly bool
	var lines []string
	command := &cobra.Command{
		Use:       "images [NAME...]",
		Short:     "Build images for tests and give them to all nodes: of the databases postgres (the default), etcd and mysql, of a store for backups s3",
		ValidArgs: slices.Sorted(maps.Keys(builders)),
		Args:      cobra.OnlyValidArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := artifact.EnsurePackages(cmd.Context()); err != nil {
				return err
			}
			if len(names) == 0 {
				names = []string{"postgres"}
			}
			for _, name := range names {
				images, err := builders[name](cmd.Context(), lines, refresh, cmd.ErrOrStderr())
				if err != nil {
					return err
				}
				for _, i := range images {
					fmt.Fprintf(cmd.OutOrStdout(), "%s (%s)\n", strings.Join(i.Refs, " "), i.Source)
				}
				if buildOnly {
					continue
				}
				if err := lifecycle.RunExclusively(func() error { return lifecycle.LoadImages(o.stateDir(), name, lines, images) }); err != nil {
					return err
				}
			}
			return nil
		},
	}
	command.Flags().StringSliceVar(&lines, "line", nil, "versions to build, such as 17 or 3.6 (default: all)")
	command.Flags().BoolVar(&refresh, "refresh", false, "ask for newer versions instead of taking what was built before")
	command.Flags().BoolVar(&buildOnly, "build-only", false, "do not give them to the nodes")
	return command
}

// postgresCommand is for tests that need PostgreSQL and no Kubernetes.
func postgresCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "postgres MAJOR",
		Short: "Print the folder of a file tree with PostgreSQL of a major and its libraries, the root for tests, building it when missing",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			major, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("%q is no major of PostgreSQL, such as 17", args[0])
			}
			folder, err := image.BuildPostgresPrograms(cmd.Context(), major, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), folder)
			return nil
		},
	}
}

// etcdCommand is for tests that need etcd and no Kubernetes.
func etcdCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "etcd VERSION",
		Short: "Print the folder of etcd, etcdctl and etcdutl of a version, or of the newest of a line such as 3.6, building them when missing",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := image.EtcdVersion(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			folder, err := artifact.BuildEtcd(cmd.Context(), version)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), folder)
			return nil
		},
	}
}

// mysqlCommand is for tests that need MySQL and no Kubernetes.
func mysqlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mysql VERSION",
		Short: "Print the folder of mysqld, mysql, mysqladmin and mysqldump of a version or of a line such as 9.7, building them when missing",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := artifact.EnsurePackages(cmd.Context()); err != nil {
				return err
			}
			folder, err := image.MySQLPrograms(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), folder)
			return nil
		},
	}
}

// programsCommand is for tests that need a program of Debian and no Kubernetes.
func programsCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "programs PACKAGE",
		Short:     "Print the folder of the programs of a package of Debian: " + strings.Join(artifact.DebianPrograms, ", ") + "; it is downloaded when missing, and not installed",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: artifact.DebianPrograms,
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := artifact.UnpackDebian(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), folder)
			return nil
		},
	}
}
