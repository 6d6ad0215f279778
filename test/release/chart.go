package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/action"

	"github.com/holdfast-db/holdfast/test/docs"
)

// chartFolder is the Helm chart of the tree.
const chartFolder = "config/helm/holdfast"

// chartFile is the packaged chart. Helm's versions have no v.
func (r *release) chartFile() string {
	return "holdfast-" + strings.TrimPrefix(r.version, "v") + ".tgz"
}

// writeChart packages the chart as helm package does, for this version and image.
func (r *release) writeChart(context.Context) error {
	folder, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	chart := filepath.Join(folder, filepath.Base(chartFolder))
	if err := os.CopyFS(chart, os.DirFS(filepath.Join(r.root, chartFolder))); err != nil {
		return err
	}
	if err := replaceImage(filepath.Join(chart, "values.yaml"), r.image); err != nil {
		return err
	}
	if err := r.writeChartPage(filepath.Join(chart, "README.md")); err != nil {
		return err
	}
	pack := action.NewPackage()
	pack.Version, pack.AppVersion = strings.TrimPrefix(r.version, "v"), r.version
	pack.Destination, pack.SourceDateEpoch = r.out, &r.source.time
	_, err = pack.Run(chart, nil)
	return err
}

// writeChartPage makes the chart's page one of the release: it is read outside of the tree.
func (r *release) writeChartPage(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, err := docs.ReadVersion(r.root)
	if err != nil {
		return err
	}
	name := chartFolder + "/README.md"
	page, err := stampFile(name, string(text), before, r.version)
	if err != nil {
		return err
	}
	page = absoluteLinks(page, repository+"/blob/"+r.version+"/"+name)
	return os.WriteFile(file, []byte(page), 0o644) //nolint:gosec // it is published
}

// replaceImage names the image's repository in a chart's values.
func replaceImage(file, image string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const line = "repository: "
	if bytes.Count(text, []byte(line+defaultImage+"\n")) != 1 {
		return fmt.Errorf("%s does not name %s once", file, defaultImage)
	}
	text = bytes.Replace(text, []byte(line+defaultImage+"\n"), []byte(line+image+"\n"), 1)
	return os.WriteFile(file, text, 0o644) //nolint:gosec // it is published
}
