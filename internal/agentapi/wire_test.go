package agentapi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What agents and operators wrote before the types of single engines had
// packages of their own is read the same, and is written with the same keys.
func TestWireStaysFlat(t *testing.T) {
	for file, into := range map[string]any{
		"status_postgres.json": &Status{}, "status_etcd.json": &Status{},
		"config_postgres.json": &ClusterConfig{}, "config_etcd.json": &ClusterConfig{},
		"restore_etcd.json": &RestoreTask{},
	} {
		t.Run(file, func(t *testing.T) {
			recorded, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(recorded, into); err != nil {
				t.Fatal(err)
			}
			written, err := json.Marshal(into)
			if err != nil {
				t.Fatal(err)
			}
			var before, now map[string]any
			if err := json.Unmarshal(recorded, &before); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(written, &now); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, now); diff != "" {
				t.Errorf("keys that were lost or renamed (-recorded +written):\n%s", diff)
			}
		})
	}
}

// Every field of the wire types is in some recorded object, so that none is
// renamed unnoticed; and no two embedded types have a key in common, which
// encoding/json would drop.
func TestWireIsRecordedInFull(t *testing.T) {
	for _, c := range []struct {
		of    reflect.Type
		files []string
	}{
		{reflect.TypeFor[Status](), []string{"status_postgres.json", "status_etcd.json"}},
		{reflect.TypeFor[ClusterConfig](), []string{"config_postgres.json", "config_etcd.json"}},
	} {
		recorded := map[string]bool{}
		for _, file := range c.files {
			data, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			var object map[string]any
			if err := json.Unmarshal(data, &object); err != nil {
				t.Fatal(err)
			}
			for key := range object {
				recorded[key] = true
			}
		}
		keys := map[string]bool{}
		for _, field := range reflect.VisibleFields(c.of) {
			key := jsonKey(field)
			if field.Anonymous && key == "" {
				continue
			}
			if keys[key] {
				t.Errorf("%s: two fields have the key %q", c.of, key)
			}
			keys[key] = true
			if !recorded[key] {
				t.Errorf("%s: no recorded object has the key %q", c.of, key)
			}
		}
	}
}

func jsonKey(field reflect.StructField) string {
	key := field.Tag.Get("json")
	for i, c := range key {
		if c == ',' {
			return key[:i]
		}
	}
	return key
}
