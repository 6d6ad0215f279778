// Package plan says what a commit will do to each cluster before it is merged. It reads
// declarations and the API server with the rights of the caller, and forecasts with the
// operator's own planners. It writes nothing: what it sends beside reads are dry runs.
package plan

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Input is what was read: the objects of Holdfast's kinds, and how many others there were.
type Input struct {
	Objects []*unstructured.Unstructured
	Others  int
}

// plannedKinds are the kinds that a plan is about, in the order in which it shows them.
var plannedKinds = append(slices.Sorted(maps.Keys(kinds)), "Database", "Backup")

// ReadDocuments reads YAML or JSON of any number of documents. Lists are taken apart.
func ReadDocuments(r io.Reader, source string) (Input, error) {
	var in Input
	reader := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return in, nil
		}
		if err == nil {
			err = in.addDocument(document)
		}
		if err != nil {
			return in, fmt.Errorf("%s, document %d: %w", source, n, err)
		}
	}
}

// addDocument adds what one document declares. An empty one declares nothing.
func (in *Input) addDocument(document []byte) error {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	if data = bytes.TrimSpace(data); len(data) == 0 || bytes.Equal(data, []byte("null")) {
		return nil
	}
	var head struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("this is no object: %w", err)
	}
	if head.Kind == "List" || strings.HasSuffix(head.Kind, "List") && head.Items != nil {
		for i, item := range head.Items {
			if err := in.addDocument(item); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		return nil
	}
	if group, _, _ := strings.Cut(head.APIVersion, "/"); group != v1alpha1.GroupVersion.Group || !slices.Contains(plannedKinds, head.Kind) {
		in.Others++
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return err
	}
	if u.GetName() == "" {
		return fmt.Errorf("a %s has no metadata.name", head.Kind)
	}
	in.Objects = append(in.Objects, u)
	return nil
}

// ReadDirectory reads all YAML and JSON files below a directory.
func ReadDirectory(dir string) (Input, error) {
	var in Input
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		file, err := os.Open(path) //nolint:gosec // the caller names the directory
		if err != nil {
			return err
		}
		defer file.Close()
		read, err := ReadDocuments(file, path)
		in.Objects, in.Others = append(in.Objects, read.Objects...), in.Others+read.Others
		return err
	})
	return in, err
}

// Place gives objects without a namespace one, and refuses two of one name.
func (in *Input) Place(namespace string) error {
	found := map[string]bool{}
	for _, u := range in.Objects {
		if u.GetNamespace() == "" {
			u.SetNamespace(namespace)
		}
		id := identify(u.GetKind(), client.ObjectKeyFromObject(u))
		if found[id] {
			return fmt.Errorf("%s is declared twice", id)
		}
		found[id] = true
	}
	slices.SortStableFunc(in.Objects, func(a, b *unstructured.Unstructured) int {
		if rank := slices.Index(plannedKinds, a.GetKind()) - slices.Index(plannedKinds, b.GetKind()); rank != 0 {
			return rank
		}
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return nil
}

// Override moves every object to a namespace, as a Kustomization with a target does.
func (in *Input) Override(namespace string) {
	for _, u := range in.Objects {
		u.SetNamespace(namespace)
	}
}

// identify names an object in messages.
func identify(kind string, key client.ObjectKey) string { return kind + " " + key.String() }
