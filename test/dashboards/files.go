package dashboards

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Folder of the dashboards, and the file of the alerts, from the root of the tree.
const (
	Folder     = "config/dashboards"
	alertsFile = "config/prometheus/rules.yaml"
)

// Files are the JSON of all dashboards by file name.
func Files(root string) (map[string][]byte, error) {
	runbooks, err := readRunbooks(root)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, d := range All() {
		if out[d.File+".json"], err = d.JSON(runbooks); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// WriteFiles writes the dashboards, and removes those that are gone.
func WriteFiles(root string) error {
	files, err := Files(root)
	if err != nil {
		return err
	}
	folder := filepath.Join(root, Folder)
	old, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range old {
		if _, kept := files[filepath.Base(path)]; !kept {
			errs = append(errs, os.Remove(path))
		}
	}
	for name, text := range files {
		errs = append(errs, os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
	return errors.Join(errs...)
}

// rule is an alert, as far as dashboards read it.
type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Annotations map[string]string `json:"annotations"`
}

// readRules reads the alerts.
func readRules(root string) ([]rule, error) {
	data, err := os.ReadFile(filepath.Join(root, alertsFile))
	if err != nil {
		return nil, err
	}
	var object struct {
		Spec struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("%s: %w", alertsFile, err)
	}
	var rules []rule
	for _, group := range object.Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules, nil
}

// readRunbooks reads the page of each alert.
func readRunbooks(root string) (map[string]string, error) {
	rules, err := readRules(root)
	runbooks := map[string]string{}
	for _, r := range rules {
		runbooks[r.Alert] = r.Annotations["runbook_url"]
	}
	return runbooks, err
}
