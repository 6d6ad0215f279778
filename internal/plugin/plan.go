package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/plugin/plan"
)

type planOptions struct {
	*session
	files         []string
	from, to      string
	kustomization string
	fieldManager  string
	output        string
	readOnly      bool
	allowLoss     bool
	marker        string
	prices        string
}

func planCommand(s *session) *cobra.Command {
	o := &planOptions{session: s}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what a commit will do to each cluster, before it is merged",
		Long: `Show what declarations will do to each cluster, before they are applied: which
fields change and what that takes, the steps of the operator in their order, when
writes pause, what cannot be reverted, and what is not known.

The API server is asked what each object will be, by a dry run of a forced apply as
the Git tool's own field manager. What follows is forecast with the operator's own
code from the cluster as it is. Nothing is written, and no Secret is read.

The exit code is 0 if nothing happens, 1 if something does, 2 on errors, 3 if the API
server or the operator refuses a change or it would stall, and 4 if data is at risk
and --allow-data-loss is not set.`,
		Example: `  kustomize build shop/production | kubectl holdfast plan -f -
  kubectl holdfast plan -f orders.yaml -n shop
  kubectl holdfast plan -f - --kustomization flux-system/apps -o markdown < built.yaml
  kubectl holdfast plan --from main/shop --to branch/shop --prices prices.yaml`,
		Args:              func(cmd *cobra.Command, args []string) error { return failPlan(cobra.NoArgs(cmd, args)) },
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return failPlan(o.runPlan(cmd)) },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return failPlan(err) })
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "YAML or JSON file with the declarations, a directory of them, or - for standard input; may be repeated")
	f.StringVar(&o.from, "from", "", "directory of declarations as they are now: with --to, plan offline, without a cluster")
	f.StringVar(&o.to, "to", "", "directory of declarations as they will be")
	f.StringVar(&o.kustomization, "kustomization", "", "Flux Kustomization as NAMESPACE/NAME: clusters of its inventory that the input lacks are deletions")
	f.StringVar(&o.fieldManager, "field-manager", "", "field manager that applies the declarations (default: the one that applies the cluster now)")
	f.BoolVar(&o.readOnly, "read-only", false, "send no dry run: merge here, and leave admission out")
	f.BoolVar(&o.allowLoss, "allow-data-loss", false, "do not exit with 4 for data that the change deletes")
	f.StringVar(&o.prices, "prices", "", "file with your prices: also show what a month of each cluster costs before and after")
	f.StringVar(&o.marker, "marker", "plan", "name in the hidden marker of -o markdown, by which CI finds its comment")
	outputFlag(cmd, &o.output, "tree", "json", "markdown")
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error { return failPlan(check(cmd, args)) }
	return cmd
}

// failPlan gives an error the exit code of one: 1, that of other commands, says that
// something changes.
func failPlan(err error) error {
	var own *exitError
	if err == nil || errors.As(err, &own) {
		return err
	}
	return &exitError{plan.ExitError, err}
}

func (o *planOptions) runPlan(cmd *cobra.Command) error {
	report, err := o.makeReport(cmd)
	if err != nil {
		return err
	}
	if err := o.printReport(cmd, report); err != nil {
		return err
	}
	if report.ExitCode != plan.ExitNothing {
		return &exitError{code: report.ExitCode}
	}
	return nil
}

func (o *planOptions) printReport(cmd *cobra.Command, report plan.Report) error {
	switch o.output {
	case "json":
		return writeEncoded(cmd.OutOrStdout(), "json", report)
	case "markdown":
		_, err := io.WriteString(cmd.OutOrStdout(), renderMarkdown(report, o.marker))
		return err
	}
	_, err := io.WriteString(cmd.OutOrStdout(), styleOf(cmd).renderPlan(report))
	return err
}

// makeReport plans what the flags name.
func (o *planOptions) makeReport(cmd *cobra.Command) (plan.Report, error) {
	p := &plan.Planner{ReadOnly: o.readOnly, FieldManager: o.fieldManager, AllowLoss: o.allowLoss, Now: time.Now()}
	if o.prices != "" {
		prices, err := readPrices(o.prices)
		if err != nil {
			return plan.Report{}, err
		}
		p.Prices = prices
	}
	if o.from != "" || o.to != "" {
		return o.planOffline(cmd.Context(), p)
	}
	if len(o.files) == 0 {
		return plan.Report{}, errors.New("name the declarations with -f FILE, or with --from DIR and --to DIR")
	}
	in, err := o.readInput(cmd.InOrStdin())
	if err != nil {
		return plan.Report{}, err
	}
	if err := o.connectToCluster(); err != nil {
		return plan.Report{}, err
	}
	p.Client = o.client
	gone, notes, err := o.readKustomization(cmd.Context(), p, &in)
	if err != nil {
		return plan.Report{}, err
	}
	if err := in.Place(o.namespace); err != nil {
		return plan.Report{}, err
	}
	report, err := p.Plan(cmd.Context(), in, gone)
	report.Notes = append(report.Notes, notes...)
	return report, err
}

// planOffline plans without a cluster.
func (o *planOptions) planOffline(ctx context.Context, p *plan.Planner) (plan.Report, error) {
	if o.from == "" || o.to == "" || len(o.files) > 0 || o.kustomization != "" {
		return plan.Report{}, errors.New("an offline plan takes --from DIR and --to DIR, and neither -f nor --kustomization")
	}
	namespace := o.overrides.Context.Namespace
	if namespace == "" {
		namespace = "default"
	}
	var read [2]plan.Input
	for i, dir := range []string{o.from, o.to} {
		in, err := plan.ReadDirectory(dir)
		if err == nil {
			err = in.Place(namespace)
		}
		if err != nil {
			return plan.Report{}, err
		}
		read[i] = in
	}
	return p.PlanOffline(ctx, read[0], read[1])
}

// readInput reads what the files declare.
func (o *planOptions) readInput(stdin io.Reader) (plan.Input, error) {
	var all plan.Input
	for _, name := range o.files {
		in, err := readFile(name, stdin)
		if err != nil {
			return all, err
		}
		all.Objects, all.Others = append(all.Objects, in.Objects...), all.Others+in.Others
	}
	return all, nil
}

func readFile(name string, stdin io.Reader) (plan.Input, error) {
	if name == "-" {
		return plan.ReadDocuments(stdin, "standard input")
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return plan.ReadDirectory(name)
	}
	file, err := os.Open(name) //nolint:gosec // the caller names the file
	if err != nil {
		return plan.Input{}, err
	}
	defer file.Close()
	return plan.ReadDocuments(file, name)
}

func readPrices(name string) (*plan.Prices, error) {
	file, err := os.Open(name) //nolint:gosec // the caller names the file
	if err != nil {
		return nil, fmt.Errorf("--prices: %w", err)
	}
	defer file.Close()
	return plan.ReadPrices(file, name)
}

// readKustomization finds what a Kustomization would delete.
func (o *planOptions) readKustomization(ctx context.Context, p *plan.Planner, in *plan.Input) (gone []*unstructured.Unstructured, notes []string, err error) {
	if o.kustomization == "" {
		return nil, nil, nil
	}
	namespace, name, both := strings.Cut(o.kustomization, "/")
	if !both || namespace == "" || name == "" {
		return nil, nil, fmt.Errorf("--kustomization %q: write NAMESPACE/NAME", o.kustomization)
	}
	k, err := p.ReadKustomization(ctx, client.ObjectKey{Namespace: namespace, Name: name}, in)
	return k.Missing, k.Notes, err
}
