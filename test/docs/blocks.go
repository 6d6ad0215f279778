// Package docs reads the command blocks of the pages, for tests to run.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Block is a fenced block of a page that shows commands.
type Block struct {
	// Page by its path in the repository, and Line that the block begins at.
	Page string
	Line int
	// Text between the fences.
	Text string
	// Manifest says that it is one, to apply. Such blocks are read where they are
	// marked.
	Manifest bool
	// Test runs it, by the mark <!-- run: Test --> above the block, and at the step
	// that <!-- run: Test, step --> names: one that needs a state is run by the test
	// that makes the state.
	Test, Step string
	// NotRun says why no test does, by the mark <!-- not run: reason -->.
	NotRun string
}

// String is where a block stands.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Command of a block, and what the page shows that it prints.
type Command struct {
	Line   string
	Output []string
}

var (
	run    = regexp.MustCompile(`^<!-- run: ([A-Za-z]+)(?:, ([a-z-]+))? -->$`)
	notRun = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	shells = []string{"sh", "bash", "console", "shell"}
)

const prompt = "$ "

// ListPages lists the pages that are read: README.md and every page below docs of the repository.
func ListPages(root string) ([]string, error) {
	found := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	})
	return found, err
}

// ReadBlocks are a page's, in its order.
func ReadBlocks(root, page string) ([]Block, error) {
	content, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(root, page)
	if err != nil {
		return nil, err
	}
	var all []Block
	var open *Block
	var language, above, indent string
	for number, line := range strings.Split(string(content), "\n") {
		text := strings.TrimLeft(line, " ")
		fence, isFence := strings.CutPrefix(text, "```")
		switch {
		case isFence && open == nil:
			language, open = fence, &Block{Page: name, Line: number + 1}
			indent = strings.TrimSuffix(line, text)
			open.setMark(above)
		case isFence:
			if open.showsCommands(language) {
				all = append(all, *open)
			}
			open, above = nil, ""
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		case strings.TrimSpace(line) != "":
			above = strings.TrimSpace(line)
		}
	}
	return all, nil
}

// showsCommands says whether a block of a language shows commands, or is a
// manifest that a test applies.
func (b *Block) showsCommands(language string) bool {
	b.Manifest = language == "yaml"
	return b.Manifest && b.Test != "" || slices.Contains(shells, language) || language == "" && strings.HasPrefix(b.Text, prompt)
}

// setMark takes in what the line above a block says of who runs it.
func (b *Block) setMark(above string) {
	if mark := run.FindStringSubmatch(above); mark != nil {
		b.Test, b.Step = mark[1], mark[2]
	}
	if mark := notRun.FindStringSubmatch(above); mark != nil {
		b.NotRun = mark[1]
	}
}

// ReadAllBlocks reads the blocks of all pages.
func ReadAllBlocks(root string) ([]Block, error) {
	pages, err := ListPages(root)
	if err != nil {
		return nil, err
	}
	var all []Block
	for _, page := range pages {
		blocks, err := ReadBlocks(root, page)
		if err != nil {
			return nil, err
		}
		all = append(all, blocks...)
	}
	return all, nil
}

// FindStep is the block of the pages that a test runs at a step. It is an error if
// there is none, or another one.
func FindStep(root, test, step string) (Block, error) {
	all, err := ReadAllBlocks(root)
	if err != nil {
		return Block{}, err
	}
	all = slices.DeleteFunc(all, func(b Block) bool { return b.Test != test || b.Step != step })
	if len(all) != 1 {
		return Block{}, fmt.Errorf("<!-- run: %s, %s --> is above %d blocks of the pages, and must be above one", test, step, len(all))
	}
	return all[0], nil
}

// ParseCommands returns the commands of a block. Without prompts it is one script, that shows no output.
func (b Block) ParseCommands() []Command {
	if b.Manifest {
		return []Command{{Line: "kubectl apply -f - <<'EOF'\n" + b.Text + "EOF"}}
	}
	if !strings.HasPrefix(b.Text, prompt) {
		return []Command{{Line: b.Text}}
	}
	var all []Command
	for line := range strings.Lines(b.Text) {
		line = strings.TrimSuffix(line, "\n")
		if command, is := strings.CutPrefix(line, prompt); is {
			all = append(all, Command{Line: command})
			continue
		}
		last := &all[len(all)-1]
		last.Output = append(last.Output, line)
	}
	return all
}

var word = regexp.MustCompile(`^[A-Za-z]+[,:.;]?$`)

// MissingWords are the words of what a page shows that were not printed. Names with
// figures, times and sizes differ from run to run, and are left out.
func (c Command) MissingWords(printed string) []string {
	have := strings.Fields(printed)
	var missing []string
	for _, line := range c.Output {
		for _, want := range strings.Fields(line) {
			if word.MatchString(want) && !slices.Contains(have, want) {
				missing = append(missing, want)
			}
		}
	}
	return missing
}
