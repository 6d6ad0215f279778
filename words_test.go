package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// avoidedWords are words that readers did not understand, each with the word to
// write. docs/glossary.md has the terms.
var avoidedWords = []struct{ pattern, write string }{
	{`births?|born|unborn`, "bootstrap, bootstrapped"},
	{`latch(es|ed)?`, "initialization guard, recorded system identifier, image pin"},
	{`hand(s|ed|ing)? over|hand-overs?`, "switchover, leader transfer"},
	{`tickets?`, "join grant"},
	{`regimens?`, "backup schedule plan"},
	{`whereabouts`, "primary address"},
	{`pass(ed|es)? over|passedOver`, "skipped"},
	{`mend(s|ed|ing)?`, "fix, repair"},
	{`told|tells of|tell of`, "reports, reported"},
	{`nobody|somebody|everybody`, "another client, manager or controller, by its name"},
	{`newcomers?|whoever`, "joining member, first member"},
	{`keepers?`, "member engine"},
	{`vaults?`, "secret cache"},
	{`put on record|puts on record|on record`, "recorded, persisted"},
	{`comes up|falls due|come up|fall due`, "is due"},
	{`by order|obeyed`, "request"},
	{`giv(en|es|ing|e) up|gave up`, "discarded (data, WAL), abandoned (a Backup), canceled (a request)"},
	{`unheard|not heard`, "does not answer"},
	{`rooms?`, "disk space, memory"},
	{`keys of (the|a) store|store's keys`, "credentials of the store"},
	{`hand(s|ed|ing)? (it|them|the \w+|a \w+) over`, "give to, switchover"},
	// American spelling.
	{`licences?`, "license"},
	{`initialis(e|es|ed|ing|ation)`, "initialize, initialized"},
	{`colour(s|ed|ing)?`, "color"},
	{`cancelled|cancelling`, "canceled, canceling"},
	{`the log|write-ahead log|archived log`, "WAL, binlog or Raft log; a text log is named with its process"},
}

// wordsToDo are directories whose messages still have such words. The list only
// shrinks: a directory that became clean must leave it.
var wordsToDo = []string{}

// wordExceptions are texts in which such a word is right.
var wordExceptions = regexp.MustCompile(`docs/(glossary|CHANGELOG)\.md`)

// textLogs are logs of text, which are called that.
var textLogs = regexp.MustCompile(`(?i)the log file|the log of (Deployment|the (Job|pod|operator|process|database))`)

var avoided = func() *regexp.Regexp {
	var patterns []string
	for _, w := range avoidedWords {
		patterns = append(patterns, w.pattern)
	}
	return regexp.MustCompile(`(?i)(?:^|[^\w/.-])(` + strings.Join(patterns, "|") + `)(?:[^\w-]|$)`)
}()

// avoidedIn finds the first avoided word of a text, and what to write instead.
func avoidedIn(text string) (word, write string) {
	found := avoided.FindStringSubmatch(textLogs.ReplaceAllString(text, "it"))
	if found == nil {
		return "", ""
	}
	for _, w := range avoidedWords {
		if regexp.MustCompile(`(?i)^(?:` + w.pattern + `)$`).MatchString(found[1]) {
			return found[1], w.write
		}
	}
	return found[1], ""
}

// Pages, descriptions of fields, alerts and manifests use the terms of the
// glossary.
func TestPagesUseTheGlossary(t *testing.T) {
	for _, root := range []string{"README.md", "docs", "config", "kustomize", "examples", "Makefile"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || wordExceptions.MatchString(filepath.ToSlash(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(text), "\n") {
				if word, write := avoidedIn(line); word != "" {
					t.Errorf("%s:%d: write %q in place of %q", path, i+1, write, word)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Messages and other texts in the code use the terms of the glossary.
func TestMessagesUseTheGlossary(t *testing.T) {
	found := map[string][]string{}
	for _, root := range []string{"api", "internal", "main.go", "image.go"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			directory := filepath.ToSlash(filepath.Dir(path))
			found[directory] = append(found[directory], avoidedInStrings(t, path)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for directory, texts := range found {
		if len(texts) > 0 && !slices.Contains(wordsToDo, directory) {
			t.Errorf("%s:\n\t%s", directory, strings.Join(texts, "\n\t"))
		}
	}
	for _, directory := range wordsToDo {
		if len(found[directory]) == 0 {
			t.Errorf("%s is clean: remove it from wordsToDo", directory)
		}
	}
}

// avoidedInStrings finds avoided words in the string literals of a file.
func avoidedInStrings(t *testing.T, path string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		if _, is := node.(*ast.ImportSpec); is {
			return false
		}
		if field, is := node.(*ast.Field); is && field.Tag != nil {
			field.Tag = nil // names on the wire stay as they are
		}
		literal, is := node.(*ast.BasicLit)
		if !is || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, " ") {
			return true // a name or a key, and no message
		}
		if word, write := avoidedIn(text); word != "" {
			found = append(found, set.Position(literal.Pos()).String()+": write \""+write+"\" in place of \""+word+"\": "+strings.Join(strings.Fields(text), " "))
		}
		return true
	})
	return found
}

// avoidedNames are the avoided words of one piece, as parts of identifiers and in
// comments.
var avoidedNames = regexp.MustCompile(`(?i)^(births?|born|unborn|latch(es|ed)?|tickets?|regimens?|whereabouts|mend(s|ed|ing)?|told|nobody|somebody|everybody|newcomers?|whoever|keepers?|vaults?|unheard|giving)$`)

// nameParts are the words of an identifier, such as is, Join and Grant.
var nameParts = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

// Comments and identifiers use the terms of the glossary, in tests as well.
func TestCodeUsesTheGlossary(t *testing.T) {
	for _, root := range []string{"api", "internal", "main.go", "image.go", "test/e2e", "test/gitops", "test/docs", "test/cluster"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			for _, found := range avoidedInCode(t, path) {
				t.Error(found)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// avoidedInCode finds avoided words in the comments and the identifiers of a file.
func avoidedInCode(t *testing.T, path string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	check := func(at token.Pos, text string, words []string) {
		for _, word := range words {
			if avoidedNames.MatchString(word) {
				_, write := avoidedIn(word)
				found = append(found, set.Position(at).String()+": write "+strconv.Quote(cmp.Or(write, "a term of docs/glossary.md"))+" in place of "+strconv.Quote(word)+": "+text)
			}
		}
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			check(comment.Pos(), comment.Text, regexp.MustCompile(`[A-Za-z]+`).FindAllString(comment.Text, -1))
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if name, is := node.(*ast.Ident); is {
			check(name.Pos(), name.Name, nameParts.FindAllString(name.Name, -1))
		}
		return true
	})
	return found
}

func TestAvoidedWords(t *testing.T) {
	for text, want := range map[string]string{
		"an empty volume is born": "born", "Somebody changed it": "Somebody", "the slot was passed over": "passed over",
		"the template is told apart": "told", "recommend a bigger volume": "", "spec.restore.amended": "", "commands": "",
		"read the log": "the log", "the log of Deployment holdfast": "", "the logger": "", "a secret vault": "vault", "https://vault.example": "",
		"the data needs room, too": "room", "hand the field over": "hand the field over", "a cancelled import": "cancelled", "canceled": "",
		"the store's keys": "store's keys", "initialised": "initialised", "licence": "licence", "license": "", "no colours": "colours", "mushroom": "",
	} {
		if word, _ := avoidedIn(text); word != want {
			t.Errorf("avoidedIn(%q) is %q, not %q", text, word, want)
		}
	}
}
