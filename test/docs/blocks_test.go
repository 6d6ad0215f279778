package docs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	root := t.TempDir()
	page := filepath.Join(root, "README.md")
	text := "# A\n\n```sh\nmake a\n```\n\n<!-- run: Docs -->\n\n```\n$ get pg\nNAME  READY\norders-0  3\n$ f\n```\n\n" +
		"<!-- not run: it needs a registry -->\n```sh\npush\n```\n\n```yaml\na: b\n```\n\n```\nno command\n```\n\n" +
		"1. A step:\n\n   <!-- run: Docs -->\n   ```sh\n   apply -f - <<END\n     a: b\n   END\n   ```\n"
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadBlocks(root, page)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{Page: "README.md", Line: 3, Text: "make a\n"},
		{Page: "README.md", Line: 9, Text: "$ get pg\nNAME  READY\norders-0  3\n$ f\n", Test: "Docs"},
		{Page: "README.md", Line: 17, Text: "push\n", NotRun: "it needs a registry"},
		{Page: "README.md", Line: 32, Text: "apply -f - <<END\n  a: b\nEND\n", Test: "Docs"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	commands := []Command{{Line: "get pg", Output: []string{"NAME  READY", "orders-0  3"}}, {Line: "f"}}
	if diff := cmp.Diff(commands, got[1].ParseCommands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if missing := commands[0].MissingWords("NAME AGE\norders-1 2"); !cmp.Equal(missing, []string{"READY"}) {
		t.Errorf("missing are %q", missing)
	}
}

func TestFindStep(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "<!-- run: Lost, request -->\n```sh\nask\n```\n<!-- run: Lost, wait -->\n```sh\na\n```\n<!-- run: Lost, wait -->\n```sh\nb\n```\n"
	if err := os.WriteFile(filepath.Join(root, "README.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := FindStep(root, "Lost", "request")
	if diff := cmp.Diff(Block{Page: "README.md", Line: 2, Text: "ask\n", Test: "Lost", Step: "request"}, got); diff != "" || err != nil {
		t.Errorf("(-want +got):\n%s, %v", diff, err)
	}
	for _, step := range []string{"wait", "watch"} {
		if _, err := FindStep(root, "Lost", step); err == nil {
			t.Errorf("one block was found of %s", step)
		}
	}
}

func TestPagesAreFoundInFolders(t *testing.T) {
	root := t.TempDir()
	var want []string
	for _, name := range []string{"README.md", "docs/README.md", "docs/guides/backups.md", "docs/reference/api.md"} {
		path := filepath.Join(root, name)
		want = append(want, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "picture.svg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ListPages(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}
