package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/tune"
)

type recommendOptions struct {
	*session
	output string
	all    bool
}

func recommendCommand(s *session) *cobra.Command {
	o := &recommendOptions{session: s}
	cmd := &cobra.Command{
		Use:   "recommend NAME",
		Short: "Show which settings and resources should change, and why, or write a patch to commit",
		Long: `Show what the operator recommends about the settings and the resources of a
cluster, with what the members measured. With spec.tuning.mode Apply, show also
which settings are tried, kept and not tried again, and why any other is not
tried now. It changes nothing.

With -o patch it writes a patch that declares the most urgent one, or every one
with --all: those that are kept come first. Commit it beside the cluster, and list it under patches in
kustomization.yaml with the target that it names: without one, kustomize finds no
cluster whose manifest has no namespace. One setting at a time shows what helped.`,
		Args: exactlyOne,
		RunE: o.runRecommend,
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "with -o patch: every setting and resource, not only the most urgent one")
	outputFlag(cmd, &o.output, "table", "table", "patch", "json")
	return cmd
}

func (o *recommendOptions) runRecommend(cmd *cobra.Command, args []string) error {
	c, err := o.findCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	list, out := c.CommonStatus().Recommendations, cmd.OutOrStdout()
	switch o.output {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(append([]v1alpha1.RecommendationStatus{}, list...))
	case "patch":
		declared, err := o.describeDeclaration(cmd.Context(), c)
		if err != nil {
			return err
		}
		return writePatch(out, declaringObject(c), c, declared, o.all)
	}
	if err := writeRecommendations(out, c); err != nil {
		return err
	}
	return writeTuning(out, c.CommonStatus().Tuning)
}

// writeRecommendations writes a table for people.
func writeRecommendations(out io.Writer, c v1alpha1.Cluster) error {
	list := c.CommonStatus().Recommendations
	if len(list) == 0 {
		text := "Nothing is recommended."
		if c.Common().Tuning.Mode == v1alpha1.TuningOff {
			text = "spec.tuning.mode is Off: nothing is recommended."
		}
		_, err := fmt.Fprintln(out, text)
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(table, "FIELD\tCURRENT\tVALUE\tTAKES\tEVIDENCE"); err != nil {
		return err
	}
	for _, r := range list {
		takes := "reload"
		if r.Restart {
			takes = "restart"
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", r.Field, r.Current, orDash(r.Value), takes, r.Evidence); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, line := range describeEffects(list) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// describeEffects says what changes with a value, and why mode Apply does not try one.
func describeEffects(list []v1alpha1.RecommendationStatus) (lines []string) {
	for _, r := range list {
		if len(r.Computed) > 0 {
			lines = append(lines, fmt.Sprintf("With %s change %s.", r.Field, strings.Join(r.Computed, ", ")))
		}
	}
	for _, r := range list {
		if r.Untried != nil {
			lines = append(lines, fmt.Sprintf("%s is not tried: %s (%s).", r.Field, r.Untried.Message, r.Untried.Reason))
		}
	}
	return lines
}

// writeTuning writes a table of what mode Apply tries, keeps and does not try again; nothing
// where it has done nothing.
func writeTuning(out io.Writer, tuning *v1alpha1.TuningStatus) error {
	var rows [][]string
	add := func(name, from, value, state, evidence string) {
		rows = append(rows, []string{parameterField + name, from, value, state, evidence})
	}
	if tuning != nil {
		for _, t := range tuning.Settings {
			add(t.Name, t.From, t.Value, "kept", t.Evidence)
		}
		if t := tuning.Trial; t != nil {
			add(t.Name, t.From, t.Value, "tried since "+t.Since.UTC().Format(time.DateTime), t.Evidence)
		}
		for _, r := range tuning.Resting {
			state := "rests until "
			if r.Quarantined {
				state = "quarantined until "
			}
			add(r.Name, "", r.Value, state+r.Until.UTC().Format(time.DateOnly), r.Reason)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{{""}, {"TUNED", "FROM", "VALUE", "STATE", "EVIDENCE"}}, rows...) {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

// parameterField begins the field of a setting that is tuned.
const parameterField = "spec.parameters."

// listAdvice is what a patch declares: settings that are tuned already, and then what is
// recommended about others.
func listAdvice(st *v1alpha1.CommonStatus) []v1alpha1.RecommendationStatus {
	var list []v1alpha1.RecommendationStatus
	tuned := map[string]bool{}
	if st.Tuning != nil {
		for _, t := range st.Tuning.Settings {
			if !tune.IsTried(tune.PostgreSQL, t.Name, t.Value) {
				continue // another client wrote it
			}
			field := parameterField + t.Name
			tuned[field] = true
			list = append(list, v1alpha1.RecommendationStatus{Field: field, Current: t.Value, Value: t.Value, Evidence: t.Evidence})
		}
	}
	for _, r := range st.Recommendations {
		if !tuned[r.Field] && r.Value != "" { // none fits
			list = append(list, r)
		}
	}
	return list
}

// writePatch writes a patch of the object that declares the cluster, which a person
// commits.
func writePatch(out io.Writer, declaring client.Object, c v1alpha1.Cluster, tool string, all bool) error {
	spec := map[string]any{}
	var lines []string
	for _, r := range listAdvice(c.CommonStatus()) {
		if len(spec) > 0 && !all {
			break
		}
		setField(spec, strings.TrimPrefix(r.Field, "spec."), r.Value)
		lines = append(lines, describeAdvice(r))
		if len(r.Computed) > 0 {
			lines = append(lines, "#   It also changes "+strings.Join(r.Computed, ", "))
		}
	}
	if len(spec) == 0 {
		return fmt.Errorf("nothing is recommended for %s: there is no patch", nameOf(c))
	}
	kind := kindOf(c).gvk.Kind
	if declaring.GetObjectKind().GroupVersionKind().Kind == databaseGVK.Kind {
		kind = databaseGVK.Kind
	}
	target := fmt.Sprintf("# List it under patches in kustomization.yaml with target: {kind: %s, name: %s}", kind, declaring.GetName())
	lines = append([]string{target}, lines...)
	if tool != "" {
		lines = append([]string{"# The cluster is declared by " + tool + ": commit this to its source."}, lines...)
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": declaring.GetName(), "namespace": declaring.GetNamespace()},
		"spec":     spec,
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n%s", strings.Join(lines, "\n"), text)
	return err
}

// describeAdvice is a comment that says why a patch has a value.
func describeAdvice(r v1alpha1.RecommendationStatus) string {
	text := fmt.Sprintf("# %s: %s, now %s: %s", r.Field, r.Value, r.Current, r.Evidence)
	if r.Current == r.Value {
		text = fmt.Sprintf("# %s: %s, as it is tuned: %s", r.Field, r.Value, r.Evidence)
	}
	return strings.Join(strings.Fields(text), " ") // a line break would end the comment
}

// setField sets a field of a spec by its path, such as resources.requests.cpu. The name of a
// parameter may have a dot.
func setField(spec map[string]any, path, value string) {
	first, rest, nested := strings.Cut(path, ".")
	if !nested {
		spec[first] = value
		return
	}
	inner, _ := spec[first].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		spec[first] = inner
	}
	if first == "parameters" {
		inner[rest] = value
		return
	}
	setField(inner, rest, value)
}
