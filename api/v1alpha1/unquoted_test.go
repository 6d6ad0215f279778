package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A whole number without quotes means its digits, in every field that takes one.
func TestWholeNumbersNeedNoQuotes(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		version    v1alpha1.PostgresVersion
		parameters v1alpha1.Parameters
		fails      bool
	}{
		{name: "strings", spec: `{"version":"17.10","parameters":{"work_mem":"8MB"}}`, version: "17.10", parameters: v1alpha1.Parameters{"work_mem": "8MB"}},
		{name: "whole numbers", spec: `{"version":17,"parameters":{"max_connections":200,"statement_timeout":-1,"wal_keep_size":2147483648}}`,
			version: "17", parameters: v1alpha1.Parameters{"max_connections": "200", "statement_timeout": "-1", "wal_keep_size": "2147483648"}},
		{name: "no parameters", spec: `{"version":"17","parameters":null}`, version: "17"},
		{name: "empty parameters", spec: `{"version":"17","parameters":{}}`, version: "17", parameters: v1alpha1.Parameters{}},
		{name: "a fraction", spec: `{"version":17.4}`, fails: true},
		{name: "a boolean", spec: `{"version":"17","parameters":{"jit":true}}`, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var spec v1alpha1.PostgresClusterSpec
			err := json.Unmarshal([]byte(c.spec), &spec)
			if c.fails {
				if err == nil {
					t.Errorf("read as %q, %v", spec.Version, spec.Parameters)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if spec.Version != c.version {
				t.Errorf("version %q", spec.Version)
			}
			if diff := cmp.Diff(c.parameters, spec.Parameters); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			again, err := json.Marshal(spec)
			var after v1alpha1.PostgresClusterSpec
			if err != nil || json.Unmarshal(again, &after) != nil || after.Version != c.version {
				t.Errorf("it does not survive being written: %s, %v", again, err)
			}
		})
	}
}
