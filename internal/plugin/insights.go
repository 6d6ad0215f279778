package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

type insightsOptions struct {
	*session
	member  string
	notices bool
	output  string
	// ask asks the agent of a member; askAgent but in tests.
	ask func(ctx context.Context, namespace, pod string) (*agentapi.Insights, error)
}

func insightsCommand(s *session) *cobra.Command {
	o := &insightsOptions{session: s}
	o.ask = o.askAgent
	cmd := &cobra.Command{
		Use:   "insights NAME",
		Short: "Show what the members' text logs report, class by class, and what to do",
		Long: `Show what the members' agents found in the text logs of their databases since
they started: classes of events with their counts, and what to do. Texts of
statements and values are in no class: kubectl holdfast logs has them.

It runs a program in each member's pod. Without the right to create pods/exec,
it shows what the operator recorded in status.insights.`,
		Args: exactlyOne,
		RunE: o.runInsights,
	}
	f := cmd.Flags()
	f.StringVar(&o.member, "member", "", "one member only: its name or its ordinal")
	f.BoolVar(&o.notices, "notices", false, "show classes of severity Notice, too")
	outputFlag(cmd, &o.output, "", "json", "yaml")
	if err := cmd.RegisterFlagCompletionFunc("member", (&execOptions{session: s}).completeMember); err != nil {
		panic(err) // the flag was just made
	}
	return cmd
}

// InsightsReport is what insights prints. Fields are added and never renamed.
type InsightsReport struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Source is agents, or status where the agents may not be asked.
	Source string `json:"source"`
	// Classes that were found, the worst first.
	Classes []InsightClass `json:"classes"`
	// Members that were asked.
	Members []InsightMember `json:"members"`
}

// InsightClass is one class of events.
type InsightClass struct {
	Class    string    `json:"class"`
	Severity string    `json:"severity"`
	Count    int64     `json:"count"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Meaning  string    `json:"meaning"`
	Remedy   string    `json:"remedy"`
	// Largest number captured with the events, in Unit, rounded.
	Unit    string  `json:"unit,omitempty"`
	Largest float64 `json:"largest,omitempty"`
	// SQLStates and Statements of the events, and the members that reported them.
	SQLStates  []string                    `json:"sqlStates,omitempty"`
	Statements []agentapi.InsightStatement `json:"statements,omitempty"`
	Members    []InsightSource             `json:"members"`
}

// InsightSource is a member that reported events of a class.
type InsightSource struct {
	Member string    `json:"member"`
	Count  int64     `json:"count,omitempty"`
	Last   time.Time `json:"last"`
}

// InsightMember is how far a member's text log is read.
type InsightMember struct {
	Member string    `json:"member"`
	Since  time.Time `json:"since,omitzero"`
	// Unread says why lines are not read, and Error why the member did not answer.
	Unread       string `json:"unread,omitempty"`
	Error        string `json:"error,omitempty"`
	Lines        int64  `json:"lines"`
	Unclassified int64  `json:"unclassified"`
	Dropped      int64  `json:"dropped"`
	// Volume says when its volume is full; missing while that is not known.
	Volume *agentapi.VolumeForecast `json:"volume,omitempty"`
	// Anomalies of the last day: signals that are not as usual, or were not.
	Anomalies []agentapi.Anomaly `json:"anomalies,omitempty"`
}

func (o *insightsOptions) runInsights(cmd *cobra.Command, args []string) error {
	c, err := o.findCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	r, err := o.gatherInsights(cmd, c)
	if err != nil {
		return err
	}
	if !o.notices {
		r.Classes = slices.DeleteFunc(r.Classes, func(i InsightClass) bool { return !loginsight.IsReported(loginsight.Severity(i.Severity)) })
	}
	if o.output != "" {
		return writeEncoded(cmd.OutOrStdout(), o.output, r)
	}
	v := view{style: styleOf(cmd), now: time.Now()}
	return v.renderInsights(r).writeTree(cmd.OutOrStdout(), v.style)
}

// gatherInsights asks every member. Where that is forbidden, the status has to do.
func (o *insightsOptions) gatherInsights(cmd *cobra.Command, c v1alpha1.Cluster) (InsightsReport, error) {
	names, err := (&logsOptions{session: o.session, member: o.member}).memberNames(c)
	if err != nil {
		return InsightsReport{}, err
	}
	r := InsightsReport{Kind: kindOf(c).gvk.Kind, Namespace: c.GetNamespace(), Name: c.GetName(), Source: "agents", Classes: []InsightClass{}}
	merged := map[string]*InsightClass{}
	failures := make([]error, len(names))
	for i, name := range names {
		m := InsightMember{Member: name}
		found, err := o.ask(cmd.Context(), c.GetNamespace(), name)
		if apierrors.IsForbidden(err) {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: the agents cannot be asked without the right to create pods/exec: this is what status.insights has")
			return statusInsights(c), nil
		}
		if err != nil {
			m.Error, failures[i] = err.Error(), fmt.Errorf("member %s: %w", name, err)
		} else {
			m.Since, m.Unread = found.Since, found.Unread
			m.Volume, m.Anomalies = found.Volume, found.Anomalies
			m.Lines, m.Unclassified, m.Dropped = found.Lines, found.Unclassified, found.Dropped
			mergeClasses(merged, name, found.Classes)
		}
		r.Members = append(r.Members, m)
	}
	r.Classes = append(r.Classes, sortClasses(merged)...)
	return r, reportFailures(cmd, failures)
}

// mergeClasses adds what a member found. A class that this plugin does not know, as it
// is older than the agent, has no meaning and no remedy.
func mergeClasses(into map[string]*InsightClass, member string, found []agentapi.Insight) {
	for _, i := range found {
		c := into[i.Class]
		if c == nil {
			c = &InsightClass{Class: i.Class, Severity: i.Severity, First: i.First, Unit: i.Unit}
			if known := loginsight.FindClass(i.Class); known != nil {
				c.Meaning, c.Remedy = known.Meaning, known.Remedy
			}
			into[i.Class] = c
		}
		c.Count += i.Count
		if i.First.Before(c.First) {
			c.First = i.First
		}
		if i.Last.After(c.Last) {
			c.Last = i.Last
		}
		c.Largest = max(c.Largest, i.Largest)
		for _, state := range i.SQLStates {
			if !slices.Contains(c.SQLStates, state) {
				c.SQLStates = append(c.SQLStates, state)
			}
		}
		c.Statements = append(c.Statements, i.Statements...)
		c.Members = append(c.Members, InsightSource{Member: member, Count: i.Count, Last: i.Last})
	}
}

func sortClasses(merged map[string]*InsightClass) []InsightClass {
	var list []InsightClass
	for _, c := range merged {
		c.Statements = mergeStatements(c.Statements)
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b InsightClass) int {
		if d := loginsight.Severity(a.Severity).Rank() - loginsight.Severity(b.Severity).Rank(); d != 0 {
			return d
		}
		if d := b.Last.Compare(a.Last); d != 0 {
			return d
		}
		return strings.Compare(a.Class, b.Class)
	})
	return list
}

// mostStatementsShown of a class.
const mostStatementsShown = 5

// mergeStatements adds up what members counted of one statement, the most frequent first.
func mergeStatements(all []agentapi.InsightStatement) []agentapi.InsightStatement {
	byID := map[int64]agentapi.InsightStatement{}
	for _, s := range all {
		before := byID[s.QueryID]
		s.Count += before.Count
		if before.Last.After(s.Last) {
			s.Last = before.Last
		}
		byID[s.QueryID] = s
	}
	var merged []agentapi.InsightStatement
	for _, s := range byID {
		merged = append(merged, s)
	}
	slices.SortFunc(merged, func(a, b agentapi.InsightStatement) int {
		switch {
		case a.Count != b.Count:
			return int(min(max(b.Count-a.Count, -1), 1))
		case a.QueryID < b.QueryID:
			return -1
		}
		return 1
	})
	return merged[:min(len(merged), mostStatementsShown)]
}

// statusInsights is what the operator recorded.
func statusInsights(c v1alpha1.Cluster) InsightsReport {
	r := InsightsReport{Kind: kindOf(c).gvk.Kind, Namespace: c.GetNamespace(), Name: c.GetName(), Source: "status", Classes: []InsightClass{}}
	recorded := c.CommonStatus().Insights
	if recorded == nil {
		return r
	}
	for _, i := range recorded.Classes {
		class := InsightClass{
			Class: i.Class, Severity: i.Severity, Count: i.Count, First: i.First.Time, Last: i.Last.Time,
			Members: []InsightSource{{Member: i.Member, Last: i.Last.Time}},
		}
		if known := loginsight.FindClass(i.Class); known != nil {
			class.Meaning, class.Remedy = known.Meaning, known.Remedy
		}
		r.Classes = append(r.Classes, class)
	}
	return r
}

// askAgent runs the agent's program in a member's container: the API server's proxy has no
// certificate that the agent accepts.
func (o *insightsOptions) askAgent(ctx context.Context, namespace, name string) (*agentapi.Insights, error) {
	var pod corev1.Pod
	if err := o.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
		return nil, err
	}
	command := []string{agentapi.BinDir + "/holdfast", "agent", "insights"}
	executor, err := o.newExecutor(&pod, &corev1.PodExecOptions{Container: containerOf(&pod), Command: command, Stdout: true, Stderr: true})
	if err != nil {
		return nil, err
	}
	var out, problem bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &problem}); err != nil {
		if text := strings.TrimSpace(problem.String()); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	}
	return readInsights(out.Bytes())
}

// readInsights reads an agent's answer. An older agent prints its help.
func readInsights(answer []byte) (*agentapi.Insights, error) {
	found := new(agentapi.Insights)
	if !bytes.HasPrefix(bytes.TrimSpace(answer), []byte("{")) {
		return nil, errors.New("its agent is older and reads no text log: it has the operator's own once its pod is replaced")
	}
	if err := json.Unmarshal(answer, found); err != nil {
		return nil, fmt.Errorf("read the answer of its agent: %w", err)
	}
	return found, nil
}

// renderInsights draws a table of classes, each with its meaning and remedy.
func (v view) renderInsights(r InsightsReport) node {
	root := node{text: v.paintText(bold, r.Kind+" "+r.Namespace+"/"+r.Name) + "  " + v.describeReading(r)}
	lines := make([][]cell, len(r.Classes))
	for i, c := range r.Classes {
		lines[i] = []cell{
			{c.Severity, severityColour(c.Severity)}, {c.Class, bold}, {fmt.Sprintf("×%d", c.Count), plain},
			{"last " + v.formatSince(c.Last), plain}, {"first " + v.formatSince(c.First), dim}, {describeSources(c.Members), plain}, {describeLargest(c), dim},
		}
	}
	for i, n := range leafNodes(v.alignCells(lines)) {
		c := r.Classes[i]
		if c.Meaning != "" {
			n.children = append(n.children, node{text: c.Meaning}, node{text: v.paintText(cyan, c.Remedy)})
		}
		if len(c.Statements) > 0 {
			n.children = append(n.children, node{text: describeStatements(c.Statements)})
		}
		root.children = append(root.children, n)
	}
	for _, m := range r.Members {
		switch {
		case m.Error != "":
			root.children = append(root.children, node{text: v.paintText(yellow, m.Member+": "+m.Error)})
		case m.Unread != "":
			root.children = append(root.children, node{text: v.paintText(yellow, m.Member+": "+m.Unread)})
		case m.Dropped > 0:
			root.children = append(root.children, node{text: v.paintText(yellow, fmt.Sprintf("%s: %d lines came too fast to be read", m.Member, m.Dropped))})
		}
		if f := m.Volume; f != nil && f.Fills {
			root.children = append(root.children, node{text: v.paintText(yellow, m.Member+": "+describeForecast(*f))})
		}
		root.children = append(root.children, v.listAnomalies(m)...)
	}
	return root
}

// describeReading says how much was read.
func (v view) describeReading(r InsightsReport) string {
	what := "nothing to report"
	if n := len(r.Classes); n == 1 {
		what = "1 class"
	} else if n > 1 {
		what = fmt.Sprintf("%d classes", n)
	}
	if r.Source == "status" {
		return what + ", as recorded in status.insights"
	}
	var lines int64
	var since time.Time
	for _, m := range r.Members {
		lines += m.Lines
		if !m.Since.IsZero() && (since.IsZero() || m.Since.Before(since)) {
			since = m.Since
		}
	}
	return fmt.Sprintf("%s in %d lines, read for %s", what, lines, v.formatSince(since))
}

func (v view) formatSince(t time.Time) string { return v.formatAge(metav1.NewTime(t)) }

func severityColour(severity string) colour {
	switch loginsight.Severity(severity) {
	case loginsight.Critical, loginsight.Error:
		return red
	case loginsight.Warning:
		return yellow
	}
	return plain
}

func describeSources(members []InsightSource) string {
	var names []string
	for _, m := range members {
		if m.Count > 0 && len(members) > 1 {
			names = append(names, fmt.Sprintf("%s ×%d", m.Member, m.Count))
			continue
		}
		names = append(names, m.Member)
	}
	return strings.Join(names, ", ")
}

// describeLargest shows the largest number of a class; empty for none.
func describeLargest(c InsightClass) string {
	number := strconv.FormatFloat(c.Largest, 'f', -1, 64)
	switch unit := loginsight.Unit(c.Unit); {
	case c.Largest == 0:
		return ""
	case unit == loginsight.Signal || unit == loginsight.ExitCode:
		return c.Unit + " " + number
	}
	return "up to " + number + " " + c.Unit
}

func describeStatements(statements []agentapi.InsightStatement) string {
	var list []string
	for _, s := range statements {
		list = append(list, fmt.Sprintf("%d ×%d", s.QueryID, s.Count))
	}
	return "query IDs: " + strings.Join(list, ", ")
}
