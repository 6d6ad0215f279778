package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// passageLines is how many lines of code in a row make a passage.
const passageLines = 6

// codeLine is a line that is neither empty nor a comment.
type codeLine struct {
	file   string
	number int
	text   string
}

// duplicateFinder finds passages that stand in two places with the same text.
type duplicateFinder struct {
	lines []codeLine
}

// addFile takes in the lines of code of a file, without its imports.
func (d *duplicateFinder) addFile(name, source string) {
	inImports := false
	for i, line := range strings.Split(source, "\n") {
		text := strings.TrimSpace(line)
		switch {
		case inImports:
			inImports = text != ")"
		case text == "import (":
			inImports = true
		case text == "" || strings.HasPrefix(text, "//") || strings.HasPrefix(text, "package "):
		default:
			d.lines = append(d.lines, codeLine{name, i + 1, text})
		}
	}
}

// findPassages lists the pairs of places whose lines are the same, each pair once and
// as long as it goes.
func (d *duplicateFinder) findPassages() []string {
	places := map[string][]int{}
	for at := range d.lines {
		if window, ok := d.windowAt(at); ok {
			places[window] = append(places[window], at)
		}
	}
	type pair struct{ a, b int }
	same := map[pair]bool{}
	for _, found := range places {
		for i, a := range found {
			for _, b := range found[i+1:] {
				same[pair{a, b}] = true
			}
		}
	}
	var heads []pair
	for p := range same {
		if !same[pair{p.a - 1, p.b - 1}] {
			heads = append(heads, p)
		}
	}
	slices.SortFunc(heads, func(p, q pair) int { return cmp.Or(cmp.Compare(p.a, q.a), cmp.Compare(p.b, q.b)) })
	var passages []string
	for _, head := range heads {
		length := passageLines
		for p := head; same[pair{p.a + 1, p.b + 1}]; p = (pair{p.a + 1, p.b + 1}) {
			length++
		}
		a, b := d.lines[head.a], d.lines[head.b]
		passages = append(passages, fmt.Sprintf("%d lines: %s:%d %s:%d", length, a.file, a.number, b.file, b.number))
	}
	return passages
}

// windowAt is the text of a passage, if one of full length begins there in one file.
func (d *duplicateFinder) windowAt(at int) (string, bool) {
	if at+passageLines > len(d.lines) || d.lines[at+passageLines-1].file != d.lines[at].file {
		return "", false
	}
	var text strings.Builder
	for _, line := range d.lines[at : at+passageLines] {
		text.WriteString(line.text + "\n")
	}
	return text.String(), true
}
