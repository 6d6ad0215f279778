package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	attestation "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// predicateType is the SLSA provenance that the statement has.
const predicateType = "https://slsa.dev/provenance/v1"

// buildPage describes how a release is made, and what its provenance does not
// prove.
const buildPage = "/docs/guides/release.md"

// writeProvenance states what the files were built from, and by what. It is not
// signed, and it says so: it is as trustworthy as the place it is read from.
func (r *release) writeProvenance(ctx context.Context) error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	predicate, err := r.describeBuild(ctx)
	if err != nil {
		return err
	}
	if err := predicate.Validate(); err != nil {
		return err
	}
	fields, err := toStruct(predicate)
	if err != nil {
		return err
	}
	statement := &attestation.Statement{Type: attestation.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: fields}
	if err := statement.Validate(); err != nil {
		return err
	}
	text, err := marshalStable(statement)
	if err != nil {
		return err
	}
	return r.writeText(provenanceFile, text)
}

// subjects are the files that were built, with their digests.
func (r *release) subjects() ([]*attestation.ResourceDescriptor, error) {
	var subjects []*attestation.ResourceDescriptor
	for _, name := range r.fileNames() {
		if name == provenanceFile || name == checksumsFile {
			continue
		}
		sum, err := fileDigest(r.path(name))
		if err != nil {
			return nil, err
		}
		subjects = append(subjects, &attestation.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	return subjects, nil
}

// describeBuild names the commit, the version of Go and the parameters. It has no
// time and no host, so that it can be compared with that of another run.
func (r *release) describeBuild(ctx context.Context) (*provenance.Provenance, error) {
	command := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	command.Dir = r.root
	goVersion, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("the version of Go: %w", err)
	}
	external, err := structpb.NewStruct(map[string]any{"version": r.version, "image": r.image})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{
		"goVersion": strings.TrimSpace(string(goVersion)),
		"buildTags": r.tags,
		// What a reader must not take for granted.
		"signed": false, "isolatedBuild": false, "sourceModified": r.source.modified(), "trial": r.trial,
	})
	if err != nil {
		return nil, err
	}
	page := repository + "/blob/" + r.version + buildPage
	return &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType: page, ExternalParameters: external, InternalParameters: internal,
			ResolvedDependencies: []*attestation.ResourceDescriptor{{
				Uri: "git+" + repository + "@" + r.source.commit, Digest: map[string]string{"gitCommit": r.source.commit},
			}},
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: page + "#provenance"}},
	}, nil
}

// toStruct is a message as the fields of its JSON.
func toStruct(message proto.Message) (*structpb.Struct, error) {
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	fields := &structpb.Struct{}
	return fields, protojson.Unmarshal(text, fields)
}

// marshalStable writes a message's JSON in the same way each time: protojson
// varies the spaces on purpose.
func marshalStable(message proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	var fields any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(fields); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
