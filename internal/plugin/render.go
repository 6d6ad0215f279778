package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// view draws reports at one moment.
type view struct {
	style
	now time.Time
}

func (v view) formatAge(t metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(v.now.Sub(t.Time))
}

// renderTree renders the report of one cluster.
func (v view) renderTree(r Report) node {
	root := node{text: v.renderTitle(r)}
	add := func(title string, children []node) {
		if len(children) > 0 {
			root.children = append(root.children, node{v.paintText(bold, title), children})
		}
	}
	if r.DeclaredBy != "" {
		root.children = append(root.children, node{text: "declared by " + r.DeclaredBy})
	}
	if text := v.describeRestore(r.Restore); text != "" {
		root.children = append(root.children, node{text: text})
	}
	add("Conditions", v.renderConditions(r))
	add("Members", v.renderMembers(r))
	add("Agents", v.renderAgents(r.Agent))
	add("Election", v.renderElection(r))
	add("Backups", v.renderBackups(r.Backups))
	add("Volumes of members that are gone", v.renderRetainedVolumes(r))
	add("Other volumes", v.renderOtherVolumes(r.OtherVolumes))
	add("Settings that wait for a restart", v.renderPendingSettings(r.Members))
	add("Drift", v.renderDrifts(r.Drift, mostDriftsShown))
	add("Events", v.renderEvents(r.Events))
	add("Could not be read", leafNodes(r.Unknown))
	return root
}

// describeRestore says what the cluster began with. What goes on is in its conditions.
func (v view) describeRestore(r *v1alpha1.RestoreStatus) string {
	if !r.Done() || r.Result == nil {
		return ""
	}
	return fmt.Sprintf("began with backup %s up to %s, %s ago", r.Result.Backup, r.Result.EndPosition, v.formatAge(*r.CompletionTime))
}

// mostDriftsShown beside everything else; kubectl holdfast drift has all.
const mostDriftsShown = 5

func (v view) renderTitle(r Report) string {
	cells := []cell{
		{r.Kind + " " + r.Namespace + "/" + r.Name, bold},
		{orDash(r.Phase), phaseColour(r.Phase)},
		{r.of.engine + " " + orDash(r.Version), plain},
		{fmt.Sprintf("%d/%d ready", r.ReadyReplicas, r.Replicas), replicasColour(r)},
		{r.of.lead + " " + orDash(r.Primary), plain},
		{"age " + v.formatAge(r.Created), plain},
	}
	if r.DriftMode == string(v1alpha1.DriftReport) {
		cells = append(cells, cell{"drift is reported only", yellow})
	}
	return v.alignCells([][]cell{cells})[0]
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func phaseColour(phase string) colour {
	switch phase {
	case "Ready":
		return green
	case "Failed", "Degraded":
		return red
	}
	return yellow
}

func replicasColour(r Report) colour {
	if r.ReadyReplicas < r.Replicas {
		return yellow
	}
	return plain
}

// shownConditions lists the conditions by importance.
var shownConditions = []string{
	v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionDegraded,
	v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionSynced, v1alpha1.ConditionBackedUp,
}

func (v view) renderConditions(r Report) []node {
	list := slices.Clone(r.Conditions)
	rank := func(c metav1.Condition) int {
		if i := slices.Index(shownConditions, c.Type); i >= 0 {
			return i
		}
		return len(shownConditions)
	}
	slices.SortStableFunc(list, func(a, b metav1.Condition) int { return rank(a) - rank(b) })
	var lines [][]cell
	if !r.Observed {
		lines = append(lines, []cell{{"…", yellow}, {"Observed", plain}, {"", plain}, {"the operator has not looked at the newest spec yet", plain}})
	}
	said := map[string]string{}
	hints := make([]string, len(lines), len(list)+1)
	for _, c := range list {
		mark, paint := conditionMark(c)
		reason, message := c.Reason, c.Message
		if reason == c.Type {
			reason = ""
		}
		hint := remedyCommand(c, r)
		if stalled := findCondition(list, v1alpha1.ConditionStalled); stalled.Type != "" && c.Type != stalled.Type {
			hint = "" // what only a person can fix comes first
		}
		if by, before := said[message]; before {
			message, hint = "see "+by, ""
		} else {
			said[message] = c.Type
		}
		lines = append(lines, []cell{{mark, paint}, {c.Type, plain}, {reason, paint}, {message, plain}})
		hints = append(hints, hint)
	}
	nodes := leafNodes(v.alignCells(lines))
	for i, hint := range hints {
		if hint != "" {
			nodes[i].children = []node{{text: v.paintText(cyan, hint)}}
		}
	}
	return nodes
}

// conditionMark is a mark that separates good from bad without colour too.
func conditionMark(c metav1.Condition) (string, colour) {
	switch {
	case c.Type == v1alpha1.ConditionStalled:
		return "✖", red
	case c.Type == v1alpha1.ConditionReconciling:
		return "…", yellow
	case c.Type == v1alpha1.ConditionDegraded:
		return "!", yellow
	case c.Status == metav1.ConditionTrue:
		return "✔", green
	case c.Status == metav1.ConditionUnknown:
		return "?", yellow
	case c.Type == v1alpha1.ConditionSynced, c.Type == v1alpha1.ConditionBackedUp:
		return "!", yellow
	}
	return "✖", red
}

// remedyCommand is the command that helps on; conditions' own messages say what to
// change in the spec.
func remedyCommand(c metav1.Condition, r Report) string {
	name := r.Name + " -n " + r.Namespace
	switch c.Reason {
	case v1alpha1.ReasonDrifted:
		return "kubectl holdfast drift " + name + " --diff shows it; " + putsBack(r, name)
	case v1alpha1.ReasonContested:
		return "kubectl holdfast drift " + name + " shows who"
	case v1alpha1.ReasonNoSafeCandidate:
		return "if what is lost is accepted: kubectl holdfast promote " + r.Name + " POD -n " + r.Namespace + " --force"
	case v1alpha1.ReasonSuspended:
		return "kubectl holdfast resume " + name
	case v1alpha1.ReasonMemberDown, v1alpha1.ReasonMemberUnreachable, v1alpha1.ReasonProgressDeadline, v1alpha1.ReasonNoLeader:
		return "kubectl holdfast logs " + name + " says more"
	}
	return ""
}

// putsBack is what has drift reverted that stands: a suspended cluster goes on
// with its drift mode when it is resumed.
func putsBack(r Report, name string) string {
	if r.Suspended {
		return "kubectl holdfast resume " + name + " has it put back, unless spec.drift.mode is Report"
	}
	return "spec.drift.mode: Revert puts it back"
}

func (v view) renderMembers(r Report) []node {
	lines := make([][]cell, len(r.Members))
	for i, m := range r.Members {
		ready := cell{"ready", green}
		if !m.Ready {
			ready = cell{"not ready", red}
		}
		restarts, volume := "", ""
		if m.Restarts > 0 {
			restarts = strconv.Itoa(int(m.Restarts)) + " restarts"
		}
		if m.Volume != nil {
			volume = m.Volume.describeVolume()
		}
		lines[i] = []cell{
			{m.Name, plain}, r.roleCell(m), {m.State, plain}, ready, m.measureCell(),
			{m.Version, plain}, {m.Node, dim}, {volume, dim}, {restarts, yellow},
		}
	}
	nodes := leafNodes(v.alignCells(lines))
	for i, m := range r.Members {
		if m.Message != "" {
			nodes[i].children = []node{{text: v.paintText(yellow, m.Message)}}
		}
	}
	return nodes
}

// renderAgents shows whose agents are not the operator's, and how they become so; nothing
// while all are.
func (v view) renderAgents(a *v1alpha1.AgentStatus) []node {
	if a == nil || a.Available == "" {
		return nil
	}
	lines := [][]cell{{{"operator", plain}, {a.Available, plain}}, {{"new pods", plain}, {a.Image, plain}}}
	if len(a.Outdated) == 0 {
		return leafNodes(v.alignCells(lines))
	}
	nodes := leafNodes(v.alignCells(append(lines, []cell{{"older or other", yellow}, {strings.Join(a.Outdated, ", "), plain}})))
	nodes[2].children = []node{{text: v.paintText(cyan, "they work with the operator; the annotation "+v1alpha1.AnnotationUpdateAgents+"=ID updates them one after the other")}}
	return nodes
}

// renderElection shows who leads since which term, whose volume may lead, and who was
// fenced.
func (v view) renderElection(r Report) []node {
	if r.Election == nil {
		return nil
	}
	leads := "leads"
	if r.Primary != r.Election.Leader {
		leads = "led last"
	}
	lines := [][]cell{{{leads, plain}, {fmt.Sprintf("%s, since term %d", r.Election.Leader, r.Election.Term), plain}}}
	if len(r.Election.MayLead) > 0 {
		lines = append(lines, []cell{{"may lead", plain}, {strings.Join(r.Election.MayLead, ", "), plain}})
	}
	if s := r.Election.Synchronous; s != nil {
		colour := plain
		if s.State != v1alpha1.SynchronousFull {
			colour = yellow
		}
		standbys := fmt.Sprintf("%s: %d of %s flush a commit; streaming: %s", s.State, s.Number, strings.Join(s.Members, ", "), cmp.Or(strings.Join(s.Streaming, ", "), "none"))
		lines = append(lines, []cell{{"synchronous", colour}, {standbys, plain}})
	}
	for _, name := range r.Election.Unconfirmed {
		lines = append(lines, []cell{{"unconfirmed", yellow}, {name + " has not followed the leader since that term began", plain}})
	}
	for _, m := range r.Members {
		if m.Fences > 0 {
			lines = append(lines, []cell{{"fenced", yellow}, {m.Name + " ×" + strconv.FormatInt(m.Fences, 10) + ": its database was stopped by force", plain}})
		}
	}
	return leafNodes(v.alignCells(lines))
}

// roleCell shows the role of a member. In a group of equals it does not say who leads, and being
// no more than a member is nothing to highlight.
func (r Report) roleCell(m MemberReport) cell {
	equals := r.of.lead != v1alpha1.RolePrimary
	switch {
	case equals && m.Name == r.Primary:
		return cell{r.of.lead, bold}
	case m.Role == v1alpha1.RolePrimary:
		return cell{m.Role, bold}
	case equals, m.Role == v1alpha1.RoleReplica:
		return cell{m.Role, plain}
	}
	return cell{m.Role, yellow}
}

// nearlyFull is the percentage of its limit from which the data's size is shown
// in yellow.
const nearlyFull = 80

// measureCell is what moves: a replica's lag, or how large the data is.
func (m MemberReport) measureCell() cell {
	switch {
	case m.LagSeconds != nil:
		return cell{"lag " + strconv.FormatFloat(*m.LagSeconds, 'f', 1, 64) + "s", plain}
	case m.Role == v1alpha1.RoleReplica:
		return cell{"lag unknown", plain}
	case m.DataBytes != nil && m.DataLimitBytes != nil:
		paint := plain
		if *m.DataBytes*100 >= *m.DataLimitBytes*nearlyFull {
			paint = yellow
		}
		return cell{"data " + formatMebibytes(*m.DataBytes) + " of " + formatMebibytes(*m.DataLimitBytes), paint}
	}
	return cell{}
}

func formatMebibytes(bytes int64) string { return strconv.FormatInt(bytes>>20, 10) + "Mi" }

func (v view) renderPendingSettings(members []MemberReport) []node {
	var lines []string
	for _, m := range members {
		switch n := m.SettingsPendingRestart; {
		case n == 1:
			lines = append(lines, m.Name+": 1 setting")
		case n > 1:
			lines = append(lines, fmt.Sprintf("%s: %d settings", m.Name, n))
		}
	}
	return leafNodes(lines)
}

func (v view) renderDrifts(records []v1alpha1.DriftRecord, most int) []node {
	var lines [][]cell
	for _, d := range records[:min(len(records), most)] {
		lines = append(lines, v.driftCells(d))
	}
	nodes := leafNodes(v.alignCells(lines))
	if more := len(records) - most; more > 0 {
		nodes = append(nodes, node{text: fmt.Sprintf("and %d older", more)})
	}
	return nodes
}

func (v view) driftCells(d v1alpha1.DriftRecord) []cell {
	paint := yellow
	if d.Action == "Reverted" {
		paint = green
	}
	return []cell{{v.formatAge(d.Time), dim}, {d.Action, paint}, {d.Object, plain}, {orDash(d.Path), plain}, {"by " + cmp.Or(d.Manager, "unknown client"), plain}, {d.Operation, dim}}
}

func (v view) renderEvents(events []EventReport) []node {
	var lines [][]cell
	for _, e := range events {
		paint, count := plain, ""
		if e.Type == "Warning" {
			paint = yellow
		}
		if e.Count > 1 {
			count = "×" + strconv.Itoa(int(e.Count))
		}
		lines = append(lines, []cell{{v.formatAge(e.Time), dim}, {e.Reason, paint}, {count, dim}, {e.Message, plain}})
	}
	return leafNodes(v.alignCells(lines))
}

// renderTable renders a list of clusters.
func (v view) renderTable(list []v1alpha1.Cluster, namespaces bool) []string {
	header := []string{"NAMESPACE", "CLUSTER", "VERSION", "READY", "PRIMARY", "PHASE", "SYNCED", "AGE", "STATUS"}
	lines := [][]cell{{}}
	for _, title := range header {
		lines[0] = append(lines[0], cell{title, bold})
	}
	for _, c := range list {
		st := c.CommonStatus()
		ready, synced := findCondition(st.Conditions, v1alpha1.ConditionReady), findCondition(st.Conditions, v1alpha1.ConditionSynced)
		replicas := fmt.Sprintf("%d/%d", st.ReadyReplicas, c.Common().DesiredReplicas())
		drifted := plain
		if synced.Status == metav1.ConditionFalse {
			drifted = yellow
		}
		lines = append(lines, []cell{
			{c.GetNamespace(), plain}, {nameOf(c), plain}, {orDash(st.Version), plain},
			{replicas, plain}, {orDash(st.Primary), plain}, {orDash(st.Phase), phaseColour(st.Phase)},
			{orDash(synced.Reason), drifted}, {v.formatAge(c.GetCreationTimestamp()), plain}, {ready.Message, plain},
		})
	}
	if !namespaces {
		for i := range lines {
			lines[i] = lines[i][1:]
		}
	}
	return v.alignCells(lines)
}

func findCondition(list []metav1.Condition, kind string) metav1.Condition {
	for _, c := range list {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}
