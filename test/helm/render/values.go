package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// Marks of the table in the README.
const (
	tableBegin = "<!-- values: written by make generate -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// renderValuesTable writes a row for each value that has a description, which is
// the comment above it that begins with two dashes.
func renderValuesTable(values, readme string) error {
	text, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	rows, err := describeValues(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", values, err)
	}
	before, rest, begins := strings.Cut(string(page), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for the table: %s%s", readme, tableBegin, tableEnd)
	}
	table := "| value | default | meaning |\n|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
	return writeFile(readme, before+tableBegin+"\n"+table+"\n"+tableEnd+after)
}

// describeValues are the table's rows.
func describeValues(text string) ([]string, error) {
	node, err := kyaml.Parse(text)
	if err != nil {
		return nil, err
	}
	return describeFields(node, "")
}

func describeFields(node *kyaml.RNode, path string) ([]string, error) {
	var rows []string
	err := node.VisitFields(func(field *kyaml.MapNode) error {
		name := strings.TrimPrefix(path+"."+field.Key.YNode().Value, ".")
		description, described := strings.CutPrefix(field.Key.YNode().HeadComment, "# -- ")
		if !described {
			if field.Value.YNode().Kind != kyaml.MappingNode || len(field.Value.Content()) == 0 {
				return fmt.Errorf("%s has no description: write it above as a comment that begins with \"# -- \"", name)
			}
			below, err := describeFields(field.Value, name)
			rows = append(rows, below...)
			return err
		}
		var value any
		if err := field.Value.YNode().Decode(&value); err != nil {
			return err
		}
		shown, err := json.Marshal(value)
		if err != nil {
			return err
		}
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |", name, shown, strings.ReplaceAll(description, "\n# ", " ")))
		return nil
	})
	return rows, err
}
