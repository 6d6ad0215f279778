package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// watchInterval is how often --watch refreshes.
const watchInterval = 2 * time.Second

type statusOptions struct {
	*session
	all, watch bool
	output     string
}

func statusCommand(s *session) *cobra.Command {
	o := &statusOptions{session: s}
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show a cluster with its members, volumes, drift and events; without NAME, list clusters",
		Example: `  kubectl holdfast status            # the clusters of this namespace
  kubectl holdfast status -A         # all of them
  kubectl holdfast status orders     # one, in full
  kubectl holdfast status orders -w  # and go on showing it`,
		Args: cobra.MaximumNArgs(1),
		RunE: o.runStatus,
	}
	f := cmd.Flags()
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "list the clusters of all namespaces")
	f.BoolVarP(&o.watch, "watch", "w", false, "show it again every two seconds, until interrupted")
	outputFlag(cmd, &o.output, "", "json", "yaml")
	return cmd
}

// outputFlag is -o with a fixed set of formats.
func outputFlag(cmd *cobra.Command, into *string, fallback string, formats ...string) {
	cmd.Flags().StringVarP(into, "output", "o", fallback, "output format: "+strings.Join(formats, ", "))
	if err := cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was just made
	}
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		for _, f := range append(formats, fallback) {
			if *into == f {
				if before != nil {
					return before(cmd, args)
				}
				return nil
			}
		}
		return fmt.Errorf("-o %s is unknown: use %s", *into, strings.Join(formats, " or "))
	}
}

func (o *statusOptions) runStatus(cmd *cobra.Command, args []string) error {
	if err := o.connectToCluster(); err != nil {
		return err
	}
	show := func(w io.Writer) error { return o.showList(cmd, w) }
	if len(args) == 1 {
		show = func(w io.Writer) error { return o.showCluster(cmd, w, args[0]) }
	}
	out := cmd.OutOrStdout()
	if !o.watch {
		return show(out)
	}
	for {
		var b strings.Builder
		if err := show(&b); err != nil {
			return err
		}
		if stdoutIsTerminal(cmd) {
			// Home and clear: what was there before stays in the scroll-back.
			_, _ = io.WriteString(out, "\x1b[H\x1b[2J")
		}
		if _, err := io.WriteString(out, b.String()); err != nil {
			return err
		}
		if !waitFor(cmd.Context(), watchInterval) {
			return nil
		}
		if !stdoutIsTerminal(cmd) && o.output == "" {
			fmt.Fprintln(out)
		}
	}
}

// waitFor waits, and says whether to go on.
func waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (o *statusOptions) showCluster(cmd *cobra.Command, w io.Writer, name string) error {
	c, err := o.findCluster(cmd.Context(), name)
	if err != nil {
		return err
	}
	r := o.gatherReport(cmd.Context(), c)
	if o.output != "" {
		return writeEncoded(w, o.output, r)
	}
	v := view{style: styleOf(cmd), now: time.Now()}
	return v.renderTree(r).writeTree(w, v.style)
}

func (o *statusOptions) showList(cmd *cobra.Command, w io.Writer) error {
	namespace := o.namespace
	if o.all {
		namespace = ""
	}
	list, err := o.listClusters(cmd.Context(), namespace)
	switch {
	case err != nil && len(list) == 0:
		return err
	case err != nil:
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", err)
	}
	if o.output != "" {
		reports := make([]Report, len(list))
		for i, c := range list {
			reports[i] = o.gatherReport(cmd.Context(), c)
		}
		return writeEncoded(w, o.output, map[string]any{"clusters": reports})
	}
	if len(list) == 0 {
		where := "in namespace " + namespace + ": -A looks in all of them"
		if o.all {
			where = "in any namespace"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "No clusters %s.\n", where)
		return nil
	}
	v := view{style: styleOf(cmd), now: time.Now()}
	_, err = io.WriteString(w, strings.Join(v.renderTable(list, o.all), "\n")+"\n")
	return err
}

// writeEncoded writes JSON or YAML.
func writeEncoded(w io.Writer, format string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	} else {
		data = append(data, '\n')
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = w.Write(data)
	return err
}
