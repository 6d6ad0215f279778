package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/test/cluster/internal/audit"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// auditOptions are the flags of the audit command.
type auditOptions struct {
	since   time.Duration
	from    string
	user    string
	output  string
	objects bool
}

func auditCommand(o *options) *cobra.Command {
	var a auditOptions
	command := &cobra.Command{
		Use:   "audit",
		Short: "Count who asked the API server for what",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query, err := a.newQuery(time.Now())
			if err != nil {
				return err
			}
			rows, err := countRequests(o.stateDir(), query)
			if err != nil {
				return err
			}
			if a.output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(rows)
			}
			return writeTable(cmd.OutOrStdout(), rows)
		},
	}
	flags := command.Flags()
	flags.DurationVar(&a.since, "since", 0, "only requests of this last while, such as 10m")
	flags.StringVar(&a.from, "from", "", "only requests from this time on (RFC 3339)")
	flags.StringVar(&a.user, "user", "", "only clients whose user and user agent, with a blank between them, match this expression")
	flags.StringVarP(&a.output, "output", "o", "table", "table or json")
	flags.BoolVar(&a.objects, "objects", false, "a row for each object")
	return command
}

func (a auditOptions) newQuery(now time.Time) (audit.Query, error) {
	q := audit.Query{Objects: a.objects}
	switch {
	case a.since != 0 && a.from != "":
		return q, errors.New("either --since or --from")
	case a.since != 0:
		q.From = now.Add(-a.since)
	case a.from != "":
		from, err := time.Parse(time.RFC3339Nano, a.from)
		if err != nil {
			return q, fmt.Errorf("--from: %w", err)
		}
		q.From = from
	}
	if a.output != "table" && a.output != "json" {
		return q, fmt.Errorf("--output %q: there are table and json", a.output)
	}
	if a.user != "" {
		user, err := regexp.Compile(a.user)
		if err != nil {
			return q, fmt.Errorf("--user: %w", err)
		}
		q.User = user
	}
	return q, nil
}

func countRequests(dir layout.Dir, q audit.Query) ([]audit.Row, error) {
	names, err := audit.ListFiles(dir.AuditLog(), q.From)
	if err != nil {
		return nil, err
	}
	var readers []io.Reader
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		readers = append(readers, file)
	}
	return audit.CountRequests(io.MultiReader(readers...), q)
}

func writeTable(out io.Writer, rows []audit.Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COUNT\tFAILED\tVERB\tRESOURCE\tUSER\tCLIENT\tOBJECT")
	for _, r := range rows {
		client, _, _ := strings.Cut(r.UserAgent, " ")
		object := strings.Trim(r.Namespace+"/"+r.Name, "/")
		verb := r.Verb
		if r.DryRun {
			verb += " (dry run)"
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", r.Count, r.CountFailed(), verb, r.Resource, r.User, client, object)
	}
	return w.Flush()
}
