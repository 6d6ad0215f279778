package plugin

import (
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/internal/forecast"
	"github.com/holdfast-db/holdfast/internal/plugin/plan"
)

// renderPlan renders a plan as trees, one for each cluster, with what they come to below.
func (s style) renderPlan(r plan.Report) string {
	var b strings.Builder
	for _, c := range r.Clusters {
		_ = s.renderPlanned(c).writeTree(&b, s) // a Builder takes all
	}
	for _, note := range r.Notes {
		b.WriteString("note: " + note + "\n")
	}
	b.WriteString(s.paintText(bold, summarizePlan(r)) + "\n")
	return b.String()
}

// summarizePlan is the last line of a plan.
func summarizePlan(r plan.Report) string {
	changing, refused, risky := 0, 0, 0
	for i := range r.Clusters {
		if r.Clusters[i].Changes() {
			changing++
		}
		if len(r.Clusters[i].Refused)+len(r.Clusters[i].Waits) > 0 {
			refused++
		}
		if len(r.Clusters[i].Risks) > 0 {
			risky++
		}
	}
	if changing+refused+risky == 0 {
		return "nothing changes"
	}
	parts := []string{countOf(changing, "object changes", "objects change"), countOf(r.Restarts, "restart", "restarts"), countOf(r.WritePauses, "write pause", "write pauses")}
	if r.OneWay > 0 {
		parts = append(parts, countOf(r.OneWay, "one-way step", "one-way steps"))
	}
	if refused > 0 {
		parts = append(parts, fmt.Sprintf("%d refused or stalled", refused))
	}
	if risky > 0 {
		parts = append(parts, fmt.Sprintf("%d with data at risk", risky))
	}
	if r.Cost != nil {
		parts = append(parts, summarizeCost(r.Cost))
	}
	return strings.Join(parts, " · ")
}

// summarizeCost is what a month costs, in the last line of a plan.
func summarizeCost(c *plan.Cost) string {
	text := fmt.Sprintf("a month costs %s %s", c.DescribeMoney(), c.Currency)
	if c.Before != c.After {
		text += fmt.Sprintf(" (%s)", c.Difference)
	}
	if c.Incomplete {
		text += " and what is not known"
	}
	return text
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// renderPlanned renders the plan of one cluster.
func (s style) renderPlanned(c plan.Cluster) node {
	root := node{text: s.alignCells([][]cell{titleCells(c)})[0]}
	add := func(title string, paint colour, children []node) {
		if len(children) > 0 {
			root.children = append(root.children, node{s.paintText(paint, title), children})
		}
	}
	add("Refused", red, factNodes(c.Refused))
	add("Data at risk", red, leafNodes(c.Risks))
	add("Fields", bold, s.renderChanges(c.Fields))
	add("Under way before", yellow, s.renderSteps(c, c.UnderWay))
	add("In this order", bold, s.renderSteps(c, c.Steps))
	add("Would not end", yellow, factNodes(c.Waits))
	add("Would be degraded", yellow, factNodes(c.Degraded))
	add("One-way", yellow, leafNodes(c.OneWay))
	add("Quota", bold, leafNodes(c.Quota))
	if c.Cost != nil {
		add("Cost of a month in "+c.Cost.Currency, bold, s.renderCost(c.Cost))
	}
	add("Not known", dim, leafNodes(c.Unknown))
	return root
}

// renderCost renders what a cluster costs, its sum, and what of it is not known.
func (s style) renderCost(c *plan.Cost) []node {
	var lines [][]cell
	for _, part := range c.Parts {
		name, amount := part.Describe()
		lines = append(lines, []cell{{name, plain}, {amount, plain}, {part.DescribeMoney(), plain}, {part.Difference, plain}})
	}
	if len(c.Parts) != 1 {
		lines = append(lines, []cell{{"together", bold}, {"", plain}, {c.DescribeMoney(), bold}, {c.Difference, bold}})
	}
	nodes := leafNodes(s.alignCells(lines))
	for _, text := range c.Unknown {
		nodes = append(nodes, node{text: s.paintText(yellow, "not known: "+text)})
	}
	return nodes
}

func titleCells(c plan.Cluster) []cell {
	paint := plain
	switch c.Action {
	case plan.ActionCreate:
		paint = green
	case plan.ActionUpdate:
		paint = yellow
	case plan.ActionDelete:
		paint = red
	}
	cells := []cell{{c.Kind + " " + c.Namespace + "/" + c.Name, bold}, {c.Action, paint}}
	if c.Runs != "" {
		cells = append(cells, cell{"runs a " + c.Runs, plain})
	}
	if c.By != "" {
		cells = append(cells, cell{"by " + c.By, plain})
	}
	return cells
}

func factNodes(facts []forecast.Fact) []node {
	var lines []string
	for _, f := range facts {
		lines = append(lines, f.Reason+": "+f.Message)
	}
	return leafNodes(lines)
}

// renderChanges renders the fields that change.
func (s style) renderChanges(changes []forecast.Change) []node {
	var lines [][]cell
	for _, c := range changes {
		paint := plain
		switch c.Effect {
		case forecast.EffectRefused:
			paint = red
		case forecast.EffectRestart, forecast.EffectUnknown, forecast.EffectLeave:
			paint = yellow
		}
		lines = append(lines, []cell{{c.Path, plain}, {plan.DescribeValues(c), plain}, {string(c.Effect), paint}})
	}
	return leafNodes(s.alignCells(lines))
}

// renderSteps renders steps, numbered.
func (s style) renderSteps(c plan.Cluster, steps []forecast.Step) []node {
	var lines [][]cell
	for i, step := range steps {
		what, detail := c.DescribeStep(step)
		paint := plain
		if step.WritesPause || step.DataAtRisk {
			paint = yellow
		}
		lines = append(lines, []cell{{fmt.Sprint(i + 1), dim}, {what, plain}, {detail, paint}})
	}
	return leafNodes(s.alignCells(lines))
}

// renderMarkdown renders a plan for a pull request. The marker is a comment that is not
// shown: CI finds by it the comment to update.
func renderMarkdown(r plan.Report, marker string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!-- holdfast-plan: %s -->\n### Database plan: %s\n", strings.ReplaceAll(marker, "--", "-"), summarizePlan(r))
	for i := range r.Clusters {
		writeMarkdown(&b, &r.Clusters[i])
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", escapeMarkdown(note))
	}
	return b.String()
}

func writeMarkdown(b *strings.Builder, c *plan.Cluster) {
	title := fmt.Sprintf("%s %s/%s", c.Kind, c.Namespace, c.Name)
	if !c.Changes() && len(c.Refused) == 0 {
		fmt.Fprintf(b, "\n**%s**: %s\n", escapeMarkdown(title), c.Action)
		return
	}
	fmt.Fprintf(b, "\n#### %s: %s", escapeMarkdown(title), c.Action)
	if c.By != "" {
		b.WriteString(" by " + escapeMarkdown(c.By))
	}
	b.WriteString("\n")
	for _, f := range c.Refused {
		fmt.Fprintf(b, "\n> **Refused** %s: %s\n", f.Reason, escapeMarkdown(f.Message))
	}
	for _, risk := range c.Risks {
		fmt.Fprintf(b, "\n> **Data at risk**: %s\n", escapeMarkdown(risk))
	}
	if len(c.Fields) > 0 {
		b.WriteString("\n| field | change | effect |\n|---|---|---|\n")
		for _, f := range c.Fields {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.Path, escapeMarkdown(plan.DescribeValues(f)), f.Effect)
		}
	}
	if len(c.Steps) > 0 {
		b.WriteString("\n")
	}
	for i, step := range c.Steps {
		what, detail := c.DescribeStep(step)
		if detail != "" {
			detail = " ‒ " + detail
		}
		fmt.Fprintf(b, "%d. %s%s\n", i+1, escapeMarkdown(what), escapeMarkdown(detail))
	}
	writeList(b, "Would not end", factTexts(c.Waits))
	writeList(b, "Would be degraded", factTexts(c.Degraded))
	writeList(b, "One-way", c.OneWay)
	writeList(b, "Quota", c.Quota)
	writeCost(b, c.Cost)
	writeList(b, "Not known", c.Unknown)
}

// writeCost writes a table of what a cluster costs, and what of it is not known.
func writeCost(b *strings.Builder, c *plan.Cost) {
	if c == nil {
		return
	}
	fmt.Fprintf(b, "\n| cost of a month | asked for | %s | difference |\n|---|---|---|---|\n", escapeMarkdown(c.Currency))
	for _, part := range c.Parts {
		name, amount := part.Describe()
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", escapeMarkdown(name), amount, part.DescribeMoney(), part.Difference)
	}
	if len(c.Parts) != 1 {
		fmt.Fprintf(b, "| **together** | | %s | %s |\n", c.DescribeMoney(), c.Difference)
	}
	writeList(b, "Cost not known", c.Unknown)
}

func factTexts(facts []forecast.Fact) []string {
	var texts []string
	for _, f := range facts {
		texts = append(texts, f.Reason+": "+f.Message)
	}
	return texts
}

func writeList(b *strings.Builder, title string, texts []string) {
	if len(texts) == 0 {
		return
	}
	fmt.Fprintf(b, "\n**%s**\n\n", title)
	for _, text := range texts {
		fmt.Fprintf(b, "- %s\n", escapeMarkdown(text))
	}
}

// markdownMarks are characters that Markdown, or a table of it, gives a meaning.
var markdownMarks = strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "`", "'", "*", `\*`, "_", `\_`, "\n", " ", "@", "&#64;")

// escapeMarkdown keeps a text from being more than text, such as a mention.
func escapeMarkdown(text string) string { return markdownMarks.Replace(text) }
