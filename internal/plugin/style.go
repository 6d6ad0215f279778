package plugin

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// colour is an ANSI attribute.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// style is whether to use colour.
type style struct{ colour bool }

// styleOf honours https://no-color.org, and files and pipes.
func styleOf(cmd *cobra.Command) style {
	return style{colour: stdoutIsTerminal(cmd) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func (s style) paintText(c colour, text string) string {
	if !s.colour || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// cell of a line whose columns are aligned with those of its neighbours.
type cell struct {
	text   string
	colour colour
}

// alignCells pads the cells of each column to one width. Columns that are empty in
// every line are left out.
func (s style) alignCells(lines [][]cell) []string {
	var widths []int
	for _, line := range lines {
		for i, c := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	out := make([]string, len(lines))
	for n, line := range lines {
		var b strings.Builder
		gap := 0
		for i, c := range line {
			if widths[i] == 0 {
				continue
			}
			if c.text != "" {
				b.WriteString(strings.Repeat(" ", gap) + s.paintText(c.colour, c.text))
				gap = 0
			}
			gap += widths[i] - utf8.RuneCountInString(c.text) + 2
		}
		out[n] = b.String()
	}
	return out
}

// node of a tree.
type node struct {
	text     string
	children []node
}

// leafNodes are nodes without children.
func leafNodes(lines []string) []node {
	nodes := make([]node, len(lines))
	for i, line := range lines {
		nodes[i].text = line
	}
	return nodes
}

// writeTree prints the tree.
func (n node) writeTree(w io.Writer, s style) error {
	var b strings.Builder
	b.WriteString(n.text + "\n")
	n.writeBranches(&b, s, "")
	_, err := io.WriteString(w, b.String())
	return err
}

func (n node) writeBranches(b *strings.Builder, s style, indent string) {
	for i, child := range n.children {
		branch, below := "├─ ", "│  "
		if i == len(n.children)-1 {
			branch, below = "└─ ", "   "
		}
		b.WriteString(s.paintText(dim, indent+branch) + child.text + "\n")
		child.writeBranches(b, s, indent+below)
	}
}
