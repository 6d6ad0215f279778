// Command kubectl-holdfast is the plugin alone, for machines that run no
// database. Releases have it for Linux, macOS and Windows; the binary holdfast
// has the same verbs, and builds on Linux only.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/plugin"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(os.Args).ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	code, print := plugin.ExitCode(err)
	if print {
		fmt.Fprintln(os.Stderr, "kubectl-holdfast:", err)
	}
	os.Exit(code)
}

// newCommand is the plugin, or what completes its arguments: kubectl runs that by
// the name of a link to this program.
func newCommand(args []string) *cobra.Command {
	root := plugin.NewRootCommand(version + " (" + runtime.Version() + ")")
	root.SetArgs(args[1:])
	if strings.TrimSuffix(filepath.Base(args[0]), ".exe") == "kubectl_complete-holdfast" {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	}
	return root
}
