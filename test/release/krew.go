package main

import (
	"sigs.k8s.io/yaml"
)

// krewManifest is a plugin as krew.googlecontainertools.github.com/v1alpha2
// describes it. Krew's own types would bring its old version of Kubernetes'
// libraries; its own validator reads the file in a test.
type krewManifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// writeKrewManifest names every archive of the plugin with its checksum.
func (r *release) writeKrewManifest() error {
	manifest := krewManifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": "holdfast"},
		Spec: krewSpec{
			Version: r.version, Homepage: repository,
			ShortDescription: "See and steer PostgreSQL, MySQL and etcd clusters",
			Description: "Shows clusters that the operator Holdfast runs: members, drift, backups, and the\n" +
				"remedy for each problem. It requests backups and switchovers, and opens psql,\n" +
				"mysql, etcdctl, shells and logs. It uses your own rights.\n",
		},
	}
	for _, p := range r.plugins {
		name := r.pluginFile(p)
		sum, err := fileDigest(r.path(name))
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": p.os, "arch": p.arch}},
			URI:      r.downloadURL(name), SHA256: sum, Bin: pluginProgram(p),
		})
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return r.writeText(krewFile, text)
}
