package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// Exit codes of drift --diff, as those of kubectl diff.
const (
	exitDifferent = 1
	exitFailed    = 2
)

type driftOptions struct {
	*session
	diff   bool
	output string
}

func driftCommand(s *session) *cobra.Command {
	o := &driftOptions{session: s}
	cmd := &cobra.Command{
		Use:   "drift NAME",
		Short: "Show what other clients changed, and with --diff what putting it back would change now",
		Long: `Show what other clients changed in the objects of a cluster, the newest first.

With --diff, compare the objects as they are with what the operator would make
of them: the same plan is computed with your own rights (it needs to read the
cluster's Secrets and to patch its objects) and sent to the API server as a dry
run. Nothing is changed; values of Secrets are masked. The exit code is 0
without differences, 1 with some, and 2 on errors.`,
		Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !o.diff {
				return o.showHistory(cmd, args[0])
			}
			err := o.showDiff(cmd, args[0])
			var own *exitError
			if err != nil && !errors.As(err, &own) {
				return &exitError{exitFailed, err}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&o.diff, "diff", false, "show what putting everything back would change now")
	outputFlag(cmd, &o.output, "", "json", "yaml")
	return cmd
}

func (o *driftOptions) showHistory(cmd *cobra.Command, name string) error {
	c, err := o.findCluster(cmd.Context(), name)
	if err != nil {
		return err
	}
	records := []v1alpha1.DriftRecord{}
	if d := c.CommonStatus().Drift; d != nil {
		records = d.Last
	}
	if o.output != "" {
		return writeEncoded(cmd.OutOrStdout(), o.output, map[string]any{"drift": records})
	}
	v := view{style: styleOf(cmd), now: time.Now()}
	synced := findCondition(c.CommonStatus().Conditions, v1alpha1.ConditionSynced)
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", v.paintText(bold, orDash(synced.Reason)), orDash(synced.Message))
	if len(records) == 0 {
		return nil
	}
	_, err = io.WriteString(cmd.OutOrStdout(), strings.Join(v.renderHistory(records), "\n")+"\n")
	return err
}

// renderHistory renders drift as a table.
func (v view) renderHistory(records []v1alpha1.DriftRecord) []string {
	lines := [][]cell{{}}
	for _, title := range []string{"TIME", "AGE", "ACTION", "OBJECT", "PATH", "MANAGER", "OPERATION"} {
		lines[0] = append(lines[0], cell{title, bold})
	}
	for _, d := range records {
		c := v.driftCells(d)
		c[4].text = cmp.Or(d.Manager, "unknown")
		lines = append(lines, append([]cell{{d.Time.UTC().Format(time.RFC3339), plain}}, c...))
	}
	return v.alignCells(lines)
}

// showDiff prints what an apply would change now.
func (o *driftOptions) showDiff(cmd *cobra.Command, name string) error {
	ctx := cmd.Context()
	c, err := o.findCluster(ctx, name)
	if err != nil {
		return err
	}
	if o.output != "" {
		return errors.New("--diff has one format: leave -o out")
	}
	if c.GetDeletionTimestamp() != nil {
		return fmt.Errorf("%s %s is being deleted: nothing is put back", kindOf(c).gvk.Kind, c.GetName())
	}
	previews, notes, err := o.previewApply(ctx, c)
	v := view{style: styleOf(cmd), now: time.Now()}
	different := false
	for _, p := range previews {
		text, diffErr := v.renderDiff(p)
		if diffErr != nil {
			return diffErr
		}
		if text == "" {
			if !p.Known {
				notes = append(notes, unknownNote(p.Object))
			}
			continue
		}
		different = true
		if !p.Known {
			notes = append(notes, unknownNote(p.Object))
		}
		if _, err := io.WriteString(cmd.OutOrStdout(), text); err != nil {
			return err
		}
	}
	for _, note := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
	switch {
	case err != nil:
		return &exitError{exitFailed, err}
	case different:
		return &exitError{code: exitDifferent}
	}
	return nil
}

func unknownNote(id apply.ObjectID) string {
	return id.String() + ": the operator applied something else last than what is computed here: the spec changed since, " +
		"a Secret that it is made from was edited, or this plugin and the operator differ in version"
}

// previewApply computes what the operator would apply, and asks the API server what
// that would change.
func (s *session) previewApply(ctx context.Context, c v1alpha1.Cluster) ([]apply.Preview, []string, error) {
	k := kindOf(c)
	declared, err := k.declared(ctx, s.client, c)
	if err != nil {
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w: --diff computes what should exist with your own rights, Secrets included", err)
		}
		return nil, nil, fmt.Errorf("compute what %s %s should consist of: %w", k.gvk.Kind, c.GetName(), err)
	}
	if len(declared.Objects) == 0 {
		return nil, declared.Notes, fmt.Errorf("nothing can be applied as the spec stands: see kubectl holdfast status %s", flagHint(c))
	}
	applier, err := apply.New(s.client, s.client, apply.Options{})
	if err != nil {
		return nil, nil, err
	}
	previews, err := applier.Preview(ctx, apply.Request{Owner: c, Objects: declared.Objects, Drift: c.Common().Drift})
	return previews, declared.Notes, err
}
