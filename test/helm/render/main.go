// Command render writes the parts of the Helm chart that say the same as the
// kustomizations: definitions, templates, and the table of values in its README.
//
//	cd test && go run ./helm/render ..
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: render <root of the tree>")
		os.Exit(2)
	}
	if err := renderChart(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// chartFolder is the chart, from the root of the tree.
const chartFolder = "config/helm/holdfast"

func renderChart(root string) error {
	chart := filepath.Join(root, chartFolder)
	if err := renderDefinitions(filepath.Join(root, "config/crd"), filepath.Join(chart, "files/crds")); err != nil {
		return err
	}
	if err := renderTemplates(root, filepath.Join(chart, "templates")); err != nil {
		return err
	}
	return renderValuesTable(filepath.Join(chart, "values.yaml"), filepath.Join(chart, "README.md"))
}

// writeFile writes a file of the chart.
func writeFile(file, text string) error {
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // it is in Git
}
