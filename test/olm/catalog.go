package olm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Keys of a bundle's annotations.
const (
	annotationPrefix         = "operators.operatorframework.io.bundle."
	packageAnnotation        = annotationPrefix + "package.v1"
	channelAnnotation        = annotationPrefix + "channels.v1"
	defaultChannelAnnotation = annotationPrefix + "channel.default.v1"
)

// metadataFields are the fields of a version's spec that a catalog shows, and what it calls
// them.
var metadataFields = map[string]string{
	"apiservicedefinitions": "apiServiceDefinitions", "customresourcedefinitions": "crdDescriptions", "description": "description",
	"displayName": "displayName", "installModes": "installModes", "keywords": "keywords", "links": "links", "maintainers": "maintainers",
	"maturity": "maturity", "minKubeVersion": "minKubeVersion", "nativeAPIs": "nativeAPIs", "provider": "provider",
}

// versionManifest is what a catalog reads of a version.
type versionManifest struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
		Labels      map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec map[string]json.RawMessage `json:"spec"`
}

// catalogIcon is the picture of a package.
type catalogIcon struct {
	Data      string `json:"base64data"`
	MediaType string `json:"mediatype"`
}

// catalogPackage is the schema olm.package.
type catalogPackage struct {
	Schema         string      `json:"schema"`
	Name           string      `json:"name"`
	DefaultChannel string      `json:"defaultChannel"`
	Description    string      `json:"description"`
	Icon           catalogIcon `json:"icon"`
}

// catalogChannel is the schema olm.channel.
type catalogChannel struct {
	Schema  string         `json:"schema"`
	Package string         `json:"package"`
	Name    string         `json:"name"`
	Entries []channelEntry `json:"entries"`
}

// channelEntry is a version of a channel. The first one replaces none.
type channelEntry struct {
	Name string `json:"name"`
}

// catalogBundle is the schema olm.bundle.
type catalogBundle struct {
	Schema        string            `json:"schema"`
	Package       string            `json:"package"`
	Name          string            `json:"name"`
	Image         string            `json:"image"`
	Properties    []catalogProperty `json:"properties"`
	RelatedImages []relatedImage    `json:"relatedImages"`
}

// catalogProperty is what a resolver, or a console, knows of a bundle without its image.
type catalogProperty struct {
	Type  string         `json:"type"`
	Value map[string]any `json:"value"`
}

// relatedImage is an image to mirror with a bundle.
type relatedImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// Catalog is a file-based catalog of this version alone: the package, its channel, and the
// bundle, whose image is to be pulled from the given reference.
func (b Bundle) Catalog(image string) ([]byte, error) {
	annotations, err := b.Labels()
	if err != nil {
		return nil, err
	}
	manifest := versionManifest{}
	if err := yaml.Unmarshal(b[VersionFile], &manifest); err != nil {
		return nil, fmt.Errorf("%s: %w", VersionFile, err)
	}
	pkg, channel := annotations[packageAnnotation], annotations[channelAnnotation]
	if pkg == "" || channel == "" || strings.Contains(channel, ",") {
		return nil, fmt.Errorf("%s names the package %q and the channel %q, where one of each is expected", annotationsFile, pkg, channel)
	}
	offered, err := manifest.describePackage(pkg, annotations[defaultChannelAnnotation])
	if err != nil {
		return nil, err
	}
	bundle, err := manifest.describeBundle(pkg, image)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for i, document := range []any{offered, catalogChannel{"olm.channel", pkg, channel, []channelEntry{{bundle.Name}}}, bundle} {
		part, err := yaml.Marshal(document)
		if err != nil {
			return nil, err
		}
		text.WriteString("---\n")
		if i == 0 { // before the first document it would be one without a schema
			text.WriteString("# A file-based catalog for the Operator Lifecycle Manager, with one version.\n")
		}
		text.Write(part)
	}
	return text.Bytes(), nil
}

// describePackage is what a console shows before a version is chosen.
func (m versionManifest) describePackage(name, defaultChannel string) (catalogPackage, error) {
	p := catalogPackage{Schema: "olm.package", Name: name, DefaultChannel: defaultChannel}
	var icons []catalogIcon
	if err := readFields(m.Spec, map[string]any{"description": &p.Description, "icon": &icons}); err != nil {
		return p, err
	}
	if len(icons) != 1 {
		return p, fmt.Errorf("%s has %d icons, where one is expected", VersionFile, len(icons))
	}
	p.Icon = icons[0]
	return p, nil
}

// describeBundle is a version as a resolver sees it.
func (m versionManifest) describeBundle(pkg, image string) (catalogBundle, error) {
	b := catalogBundle{Schema: "olm.bundle", Package: pkg, Name: m.Metadata.Name, Image: image}
	var number string
	var kinds struct {
		Owned []struct {
			Name    string `json:"name"`
			Kind    string `json:"kind"`
			Version string `json:"version"`
		} `json:"owned"`
	}
	if err := readFields(m.Spec, map[string]any{"version": &number, "customresourcedefinitions": &kinds, "relatedImages": &b.RelatedImages}); err != nil {
		return b, err
	}
	for _, kind := range kinds.Owned {
		_, group, _ := strings.Cut(kind.Name, ".")
		b.Properties = append(b.Properties, catalogProperty{"olm.gvk", map[string]any{"group": group, "kind": kind.Kind, "version": kind.Version}})
	}
	metadata, err := m.describeMetadata()
	if err != nil {
		return b, err
	}
	b.Properties = append(b.Properties,
		catalogProperty{"olm.package", map[string]any{"packageName": pkg, "version": number}},
		catalogProperty{"olm.csv.metadata", metadata})
	b.RelatedImages = append(b.RelatedImages, relatedImage{Image: image})
	slices.SortFunc(b.RelatedImages, func(x, y relatedImage) int { return cmp.Compare(x.Image, y.Image) })
	return b, nil
}

// describeMetadata is what a console shows of a version whose bundle is not unpacked.
func (m versionManifest) describeMetadata() (map[string]any, error) {
	// The catalog's own type writes this one also where it is empty.
	metadata := map[string]any{"annotations": m.Metadata.Annotations, "labels": m.Metadata.Labels, "apiServiceDefinitions": map[string]any{}}
	for field, name := range metadataFields {
		text, set := m.Spec[field]
		if !set {
			continue
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, fmt.Errorf("%s: spec.%s: %w", VersionFile, field, err)
		}
		metadata[name] = value
	}
	return metadata, nil
}

// readFields reads fields of a spec, all of which are expected.
func readFields(spec map[string]json.RawMessage, into map[string]any) error {
	for field, to := range into {
		text, set := spec[field]
		if !set {
			return fmt.Errorf("%s has no spec.%s", VersionFile, field)
		}
		if err := json.Unmarshal(text, to); err != nil {
			return fmt.Errorf("%s: spec.%s: %w", VersionFile, field, err)
		}
	}
	return nil
}
