package main

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/CycloneDX/cyclonedx-gomod/pkg/generate/bin"
	"github.com/google/uuid"
	"github.com/rs/zerolog"
)

// writeSBOM lists the modules of a program, and the libraries of its pages, in
// CycloneDX's form. The linker wrote the modules into the program, so they are what it
// was built from.
func (r *release) writeSBOM(name, program string) error {
	log := zerolog.New(r.warn).Level(zerolog.WarnLevel)
	generator, err := bin.NewGenerator(program, bin.WithVersionOverride(r.version), bin.WithIncludeStdlib(true), bin.WithLogger(log))
	if err != nil {
		return err
	}
	bom, err := generator.Generate()
	if err != nil {
		return fmt.Errorf("SBOM of %s: %w", program, err)
	}
	libraries, err := readNPMComponents(r.root)
	if err != nil {
		return err
	}
	addComponents(bom, libraries)
	sum, err := fileDigest(program)
	if err != nil {
		return err
	}
	// The same program has the same document: time and number are not drawn anew.
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.downloadURL(name)+"#sha256:"+sum)).URN()
	bom.Metadata.Timestamp = r.source.time.Format(time.RFC3339)
	bom.Metadata.Tools = &cyclonedx.ToolsChoice{Components: &[]cyclonedx.Component{{
		Type: cyclonedx.ComponentTypeApplication, Name: "cyclonedx-gomod", Version: moduleVersion("github.com/CycloneDX/cyclonedx-gomod"),
	}}}
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	if err := encoder.SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return r.writeText(name, out.Bytes())
}

// moduleVersion is the version of a module that this very program uses.
func moduleVersion(path string) string {
	if info, known := debug.ReadBuildInfo(); known {
		for _, module := range info.Deps {
			if module.Path == path {
				return module.Version
			}
		}
	}
	return ""
}
