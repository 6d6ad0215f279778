package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// recordingKubectl keeps the folder that it is to build, and writes down its other commands.
const recordingKubectl = `#!/bin/sh
if [ "$1" = kustomize ]; then
  cp -r "$2" "$RECORD/folder"
else
  printf "%s\n" "$*" >>"$RECORD/commands"
fi
`

// make deploy installs config/default with the image that it is given, in every form that a
// reference has, and applies it server-side.
func TestDeployInstallsTheImage(t *testing.T) {
	for _, image := range []string{
		"docker.io/library/holdfast:0123456789ab", "registry.example:5000/platform/holdfast:v9", "registry.example:5000/holdfast",
		"registry.example/holdfast:v9@sha256:" + strings.Repeat("a", 64),
	} {
		record := t.TempDir()
		kubectl := filepath.Join(record, "kubectl")
		if err := os.WriteFile(kubectl, []byte(recordingKubectl), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), "../deploy.sh")
		command.Env = append(os.Environ(), "IMAGE="+image, "KUBECTL="+kubectl, "RECORD="+record)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", image, err, out)
		}
		commands := readFile(t, filepath.Join(record, "commands"))
		for _, want := range []string{"apply --server-side --force-conflicts -f ", "-n holdfast-system rollout status deployment/holdfast "} {
			if strings.Count(commands, want) != 1 {
				t.Errorf("%q is no command of\n%s", want, commands)
			}
		}
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(record, "folder"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(text), "image: "+image+"\n") != 1 || strings.Count(string(text), "imagePullPolicy: IfNotPresent\n") != 1 {
			t.Errorf("the operator is not of %s, or is pulled by another policy than IfNotPresent", image)
		}
	}
}
