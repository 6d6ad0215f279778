// Command render writes kustomize/argocd/argocd-cm.yaml, the patch that teaches
// Argo CD our kinds, from the Lua scripts beside it.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const header = "# Generated from the scripts beside it by make generate. Do not edit.\n"

// actions is how argocd-cm holds the actions of a kind.
type actions struct {
	Discovery   string       `json:"discovery.lua"`
	Definitions []definition `json:"definitions"`
}

type definition struct {
	Name   string `json:"name"`
	Action string `json:"action.lua"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: render <folder of scripts>")
		os.Exit(2)
	}
	if err := renderScripts(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// renderScripts renders the scripts in dir, which lie as in Argo CD's own tree:
// <group>/<Kind>/health.lua and <group>/<Kind>/actions.
func renderScripts(dir string) error {
	kinds, err := filepath.Glob(filepath.Join(dir, "*", "*", "health.lua"))
	if err != nil {
		return err
	}
	if len(kinds) == 0 {
		return fmt.Errorf("no <group>/<Kind>/health.lua in %s", dir)
	}
	data := map[string]string{}
	for _, file := range kinds {
		kind := filepath.Dir(file)
		key := filepath.Base(filepath.Dir(kind)) + "_" + filepath.Base(kind)
		health, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		data["resource.customizations.health."+key] = string(health)
		text, err := renderActions(filepath.Join(kind, "actions"))
		if err != nil {
			return err
		}
		if text != "" {
			data["resource.customizations.actions."+key] = text
		}
	}
	patch, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "argocd-cm"}, "data": data,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "argocd-cm.yaml"), append([]byte(header), patch...), 0o600)
}

// renderActions is empty for a kind without actions.
func renderActions(dir string) (string, error) {
	discovery, err := os.ReadFile(filepath.Join(dir, "discovery.lua"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	scripts, err := filepath.Glob(filepath.Join(dir, "*", "action.lua"))
	if err != nil {
		return "", err
	}
	out := actions{Discovery: string(discovery)}
	for _, file := range scripts {
		script, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		out.Definitions = append(out.Definitions, definition{Name: filepath.Base(filepath.Dir(file)), Action: string(script)})
	}
	text, err := yaml.Marshal(out)
	return string(text), err
}
