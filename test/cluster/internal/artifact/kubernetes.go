package artifact

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kubernetesPrograms are the names that the one binary answers to.
var kubernetesPrograms = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet",
}

// minorPattern is a minor version of Kubernetes, such as 1.36.
var minorPattern = regexp.MustCompile(`^1\.[0-9]+$`)

// kubernetesModules are the folders of the modules that Kubernetes is built from, by
// minor version: kube for the default, and one folder in it for each other.
func kubernetesModules(source string) (modules map[string]string, standard string, err error) {
	kube := filepath.Join(source, "kube")
	version, err := requiredVersion(filepath.Join(kube, "go.mod"))
	if err != nil {
		return nil, "", err
	}
	standard = MinorOf(version)
	modules = map[string]string{standard: kube}
	entries, err := os.ReadDir(kube)
	if err != nil {
		return nil, "", err
	}
	for _, e := range entries {
		if e.IsDir() && minorPattern.MatchString(e.Name()) {
			modules[e.Name()] = filepath.Join(kube, e.Name())
		}
	}
	return modules, standard, nil
}

// requiredVersion of Kubernetes by a go.mod, such as v1.36.3.
func requiredVersion(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(content)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == "k8s.io/kubernetes" {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("%s requires no k8s.io/kubernetes", file)
}

// MinorOf a version such as v1.36.3: 1.36; empty for none.
func MinorOf(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// KubernetesVersion is the release of a minor version that is built, such as v1.36.3; of
// the default where minor is empty.
func KubernetesVersion(minor string) (string, error) {
	_, version, err := findKubernetes(minor)
	return version, err
}

// ListKubernetes are the minor versions that can be built, the oldest first.
func ListKubernetes() ([]string, error) {
	source, err := FindSource()
	if err != nil {
		return nil, err
	}
	modules, _, err := kubernetesModules(source)
	return sortedMinors(modules), err
}

func sortedMinors(modules map[string]string) []string {
	var minors []string
	for minor := range modules {
		minors = append(minors, minor)
	}
	number := func(minor string) (n int) {
		_, _ = fmt.Sscanf(minor, "1.%d", &n) // by the pattern it is one
		return n
	}
	slices.SortFunc(minors, func(a, b string) int { return number(a) - number(b) })
	return minors
}

func findKubernetes(minor string) (module, version string, err error) {
	source, err := FindSource()
	if err != nil {
		return "", "", err
	}
	modules, standard, err := kubernetesModules(source)
	if err != nil {
		return "", "", err
	}
	if minor == "" {
		minor = standard
	}
	module, found := modules[minor]
	if !found {
		return "", "", fmt.Errorf("there is no Kubernetes %q here: name one of %s", minor, strings.Join(sortedMinors(modules), ", "))
	}
	version, err = requiredVersion(filepath.Join(module, "go.mod"))
	if err == nil && MinorOf(version) != minor {
		err = fmt.Errorf("%s requires Kubernetes %s, which is not %s", module, version, minor)
	}
	return module, version, err
}

// BuildKubernetes returns the folder of Kubernetes' programs, etcd and kubectl, of a minor
// version such as 1.36; of the default where it is empty. Builds of several minor
// versions are kept side by side.
func BuildKubernetes(ctx context.Context, minor string) (string, error) {
	module, version, err := findKubernetes(minor)
	if err != nil {
		return "", err
	}
	source, err := FindSource()
	if err != nil {
		return "", err
	}
	program := filepath.Join(source, "kube", "main.go")
	key, err := ComputeKey([]string{program, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}, recipe)
	if err != nil {
		return "", err
	}
	return MakeFolder("kubernetes", key, func(folder string) error {
		what := fmt.Sprintf("building Kubernetes %s, about 5 minutes on two idle cores, once", version)
		return RunTimed(what, func() error { return buildKubernetes(ctx, program, module, version, folder) })
	})
}

// buildKubernetes builds the one program with the requirements of a module.
func buildKubernetes(ctx context.Context, program, module, version, folder string) error {
	if module != filepath.Dir(program) {
		together, err := os.MkdirTemp("", "kubernetes-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(together)
		for _, file := range []string{program, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")} {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(together, filepath.Base(file)), content, 0o644); err != nil {
				return err
			}
		}
		module = together
	}
	if err := goBuild(ctx, module, ".", filepath.Join(folder, "kubernetes"), versionFlags(version)); err != nil {
		return err
	}
	for _, name := range kubernetesPrograms {
		if err := os.Symlink("kubernetes", filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return nil
}
