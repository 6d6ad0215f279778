// Package kustomization builds kustomizations on this tree, as a user does who
// refers to its folders.
package kustomization

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// OperatorImage is the repository of the operator's image. Folders of the tree name it with
// a version, and an overlay that names another image replaces it.
const OperatorImage = "ghcr.io/holdfast-db/holdfast"

// Build builds the text of a kustomization.yaml, in which {root} is the root of
// the tree. Objects are in the order in which they can be applied.
func Build(root, text string) (resmap.ResMap, error) {
	folder, err := os.MkdirTemp("", "holdfast-kustomization-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	relative, err := relativePath(folder, root)
	if err != nil {
		return nil, err
	}
	text = strings.ReplaceAll(text, "{root}", relative)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	return krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
}

// relativePath is the way from one folder to another. kustomize follows links, and
// takes no absolute path.
func relativePath(from, to string) (string, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return "", err
	}
	if to, err = filepath.Abs(to); err != nil {
		return "", err
	}
	if to, err = filepath.EvalSymlinks(to); err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

// BuildObjects builds the text of a kustomization.yaml into objects.
func BuildObjects(root, text string) ([]*unstructured.Unstructured, error) {
	built, err := Build(root, text)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(content); err != nil {
			return nil, fmt.Errorf("%s: %w", resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
