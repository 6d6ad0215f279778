package main

import (
	"regexp"
	"strings"
	"testing"
)

// numberedRow is a row of a table of the page on invariants, which begins with a number.
var numberedRow = regexp.MustCompile(`^\| (R?)(\d+) \| `)

// repeatedNumbers are the numbers of invariants that stand in two rows, and those of rules
// that do in one table: the second table of rules has more rows of one rule.
func repeatedNumbers(text string) (repeated []string, invariants, rules int) {
	seen, header := map[string]bool{}, ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| #") || strings.HasPrefix(line, "| rule ") {
			header = line
		}
		row := numberedRow.FindStringSubmatch(line)
		switch {
		case row == nil || strings.HasPrefix(header, "| rule | what the server does"):
			continue
		case row[1] == "R":
			rules++
		default:
			invariants++
		}
		if number := row[1] + row[2]; seen[number] {
			repeated = append(repeated, number)
		} else {
			seen[number] = true
		}
	}
	return repeated, invariants, rules
}

// Each number on the page on invariants has one meaning.
func TestInvariantsHaveNumbersOfTheirOwn(t *testing.T) {
	repeated, invariants, rules := repeatedNumbers(page(t, "docs/invariants.md"))
	if len(repeated) > 0 {
		t.Errorf("docs/invariants.md: %q stand for more than one row each: give the later one a number that was not used", repeated)
	}
	if invariants < 60 || rules < 17 {
		t.Errorf("docs/invariants.md: only %d invariants and %d rules were found", invariants, rules)
	}
}

func TestRepeatedNumbers(t *testing.T) {
	repeated, invariants, rules := repeatedNumbers("| # | a |\n| 1 | x |\n| 2 | x |\n| rule | what holds |\n| R1 | x |\n| R2 | x |\n| R2 | y |\n" +
		"| rule | what the server does |\n| R1 | x |\n| R1 | y |\n| # | a |\n| 2 | y |\n")
	if strings.Join(repeated, " ") != "R2 2" || invariants != 3 || rules != 3 {
		t.Errorf("%q repeat, of %d invariants and %d rules", repeated, invariants, rules)
	}
}
