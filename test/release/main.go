// Command release writes what is published of a version of Holdfast into a
// folder: programs, the operator's image, the plugin, manifests, and documents
// about them. It publishes nothing. Two runs on the same tree, with the same
// version of Go, write the same bytes.
//
//	cd test && go run ./release -version v0.1.0 -packer ../bin/cluster -out ../dist ..
//
// With -stamp it names the version in the pages and manifests of the tree instead.
//
//	cd test && go run ./release -version v0.1.0 -stamp ..
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := runCommand(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context, args []string) error {
	r := &release{platforms: imagePlatforms, plugins: pluginPlatforms, warn: os.Stderr}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "version of the release, such as v0.1.0")
	flags.StringVar(&r.image, "image", defaultImage, "repository that the image will be pushed to, without a tag")
	flags.StringVar(&r.tags, "tags", "", "build tags of the programs")
	flags.StringVar(&r.packer, "packer", "", "the program of test/cluster, which packs the image")
	flags.StringVar(&r.out, "out", "", "folder for the files; it must be empty or absent")
	stamps := flags.Bool("stamp", false, "name the version in the tree, and build nothing")
	flags.BoolVar(&r.trial, "trial", false, "make files that are not to be published, of a tree with changes or without a section of the changelog")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *stamps {
		return runStamp(flags.Args(), r.version)
	}
	if flags.NArg() != 1 || r.out == "" || r.packer == "" {
		return fmt.Errorf("usage: release -version v0.1.0 -packer PROGRAM -out FOLDER <root of the tree>")
	}
	// Before anything is built: this takes minutes.
	if err := checkVersion(r.version); err != nil {
		return err
	}
	var err error
	if r.root, err = filepath.Abs(flags.Arg(0)); err != nil {
		return err
	}
	if r.source, err = readSource(ctx, r.root); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	fmt.Printf("%d files of %s were written\n", len(r.fileNames()), r.version)
	return nil
}

// runStamp names the version in the tree, and prints which files changed.
func runStamp(roots []string, version string) error {
	if len(roots) != 1 {
		return fmt.Errorf("usage: release -version v0.1.0 -stamp <root of the tree>")
	}
	changed, err := stamp(roots[0], version)
	for _, name := range changed {
		fmt.Println(name)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%d files name %s now\n", len(changed), version)
	return nil
}
