package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keepPolicy has helm uninstall, and an upgrade without the definitions, leave
// them: with a definition go all its clusters.
const keepPolicy = "    helm.sh/resource-policy: keep\n"

// renderDefinitions copies the definitions into the chart, which cannot reach
// files beside it. They are no templates: the chart inserts them as they are.
func renderDefinitions(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*_*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no definitions in %s", from)
	}
	old, err := filepath.Glob(filepath.Join(to, "*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		const annotations = "\n  annotations:\n"
		before, after, found := strings.Cut(string(text), annotations)
		if !found {
			return fmt.Errorf("%s has no annotations to add to", file)
		}
		if err := writeFile(filepath.Join(to, filepath.Base(file)), before+annotations+keepPolicy+after); err != nil {
			return err
		}
	}
	return nil
}
