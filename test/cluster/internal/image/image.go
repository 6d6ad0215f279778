package image

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Image of one version of a database or of the S3 store, in an archive on this
// machine.
type Image struct {
	Engine  string   `json:"engine"`  // postgres, etcd, mysql, s3
	Line    string   `json:"line"`    // 17, 3.6: what a version and its patches have in common
	Version string   `json:"version"` // 17.11, 3.6.4
	Source  string   `json:"source"`  // what it was made from
	Archive string   `json:"archive"`
	Refs    []string `json:"refs"`
}

// manifest is the file in a cached folder that says what the folder holds.
const manifest = "images.json"

func writeRecord(folder string, what any) error {
	content, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, manifest), content, 0o644)
}

func readRecord(folder string, what any) error {
	content, err := os.ReadFile(filepath.Join(folder, manifest))
	if err != nil {
		return err
	}
	return json.Unmarshal(content, what)
}
