package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/plugin/web"
)

type uiOptions struct {
	*session
	port  int
	files []string
}

func uiCommand(s *session) *cobra.Command {
	o := &uiOptions{session: s}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show clusters, drift, backups and insights in a browser on this machine",
		Long: `Show clusters, drift, backups, insights and a plan in a browser on this machine.

The pages are served on 127.0.0.1 until interrupted, and show what your own rights
can read: nothing runs in the cluster, nothing is written, and no Secret is read. The
address that is printed opens once, in one browser.

Without -n, clusters of all namespaces are shown, or those of the kubeconfig's
namespace if you may not list them all.`,
		Example: `  kubectl holdfast ui
  kubectl holdfast ui -n shop --port 8080
  kubectl holdfast ui -f orders.yaml   # and the plan of these declarations`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.runUI(cmd) },
	}
	cmd.Flags().IntVar(&o.port, "port", 0, "port on 127.0.0.1 (default: one that is free)")
	cmd.Flags().StringArrayVarP(&o.files, "filename", "f", nil, "YAML or JSON file, or directory, whose plan is shown, read again each time; may be repeated")
	return cmd
}

func (o *uiOptions) runUI(cmd *cobra.Command) error {
	for _, name := range o.files {
		if name == "-" {
			return errors.New("-f -: the plan is made again while you look at it: name a file or a directory")
		}
	}
	if err := o.connectToCluster(); err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(cmd.Context(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("serve on port %d: %w; choose another --port", o.port, err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	guard := web.NewGuard(port, web.Handler(o.endpoints()))
	fmt.Fprintf(cmd.OutOrStdout(), "Open %s\n", guard.Address())
	fmt.Fprintln(cmd.ErrOrStderr(), "The address opens once, in one browser. Interrupt to stop.")
	return serveUntilDone(cmd.Context(), listener, guard)
}

// serveUntilDone serves until the context ends.
func serveUntilDone(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the pages: %w", err)
	}
	return nil
}
