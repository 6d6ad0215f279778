package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// versionsPage is the one place that says what is supported, and versionsSeen what was seen
// of each version: a person writes that, after the run.
const (
	versionsPage = "docs/reference/versions.md"
	versionsSeen = "test/versions-seen.txt"
)

// versionsMark stands before what is generated of the page.
const versionsMark = "<!-- Generated from here on by go test . -run TestVersionsReference -update. -->\n"

// The page lists the versions that the tests are built of. Write its tables anew with
// go test . -run TestVersionsReference -update.
func TestVersionsReference(t *testing.T) {
	before, _, marked := strings.Cut(page(t, versionsPage), versionsMark)
	if !marked {
		t.Fatalf("%s has no mark of what is generated", versionsPage)
	}
	text := before + versionsMark + versionTable(t)
	if *update {
		if err := os.WriteFile(versionsPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if page(t, versionsPage) != text {
		t.Errorf("%s is stale: run go test . -run TestVersionsReference -update and commit", versionsPage)
	}
}

// versionTable has a row for each version of each component.
func versionTable(t *testing.T) string {
	t.Helper()
	versions := map[string][]string{
		"Kubernetes": kubernetesVersions(t), "PostgreSQL": makeList(t, "POSTGRES_MAJORS"), "etcd": makeList(t, "ETCD_VERSIONS"),
		"MySQL": makeList(t, "MYSQL_VERSION"), "processor": makeList(t, "PLATFORMS"),
	}
	seen := readSeen(t)
	var text strings.Builder
	text.WriteString("\n| component | version | seen |\n|---|---|---|\n")
	for _, component := range []string{"Kubernetes", "PostgreSQL", "etcd", "MySQL", "processor"} {
		if len(versions[component]) == 0 {
			t.Errorf("there is no version of %s", component)
		}
		for _, version := range versions[component] {
			what, known := seen[component+" "+version]
			if !known {
				t.Errorf("%s has no line for %s %s", versionsSeen, component, version)
			}
			delete(seen, component+" "+version)
			fmt.Fprintf(&text, "| %s | %s | %s |\n", component, version, what)
		}
	}
	for _, left := range slices.Sorted(maps.Keys(seen)) {
		t.Errorf("%s has a line for %s, which no test is built of", versionsSeen, left)
	}
	return text.String()
}

// readSeen is what was seen of each version: lines "component version: what".
func readSeen(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for line := range strings.Lines(page(t, versionsSeen)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		of, what, found := strings.Cut(line, ": ")
		if !found || what == "" {
			t.Errorf("%s: %q is not of the form component version: what was seen", versionsSeen, line)
		}
		seen[of] = what
	}
	return seen
}

// kubernetesVersions are the releases that the local cluster can be made of, the newest
// first.
func kubernetesVersions(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("test/cluster/kube/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`(?m)^\tk8s\.io/kubernetes v(\S+)$`)
	var versions []string
	for _, file := range append(files, "test/cluster/kube/go.mod") {
		found := required.FindStringSubmatch(page(t, file))
		if found == nil {
			t.Fatalf("%s requires no Kubernetes", file)
		}
		versions = append(versions, found[1])
	}
	slices.Sort(versions) // minor versions have two digits
	slices.Reverse(versions)
	return versions
}

// makeList is a list that the Makefile declares.
func makeList(t *testing.T, variable string) []string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + variable + ` \?= (.*)$`).FindStringSubmatch(page(t, "Makefile"))
	if found == nil {
		t.Fatalf("the Makefile declares no %s", variable)
	}
	return strings.Fields(found[1])
}

// Each part that make versions-test names is one of the end-to-end tests: a name that is
// none would run nothing, and pass.
func TestVersionTestsAreThere(t *testing.T) {
	_, parts, found := strings.Cut(strings.Join(makeList(t, "VERSION_TESTS"), " "), "/^(")
	if !found {
		t.Fatal("VERSION_TESTS names no parts")
	}
	parts, _, _ = strings.Cut(parts, ")")
	suite := page(t, "test/e2e/suite_test.go")
	for _, part := range strings.Split(parts, "|") {
		of := strings.TrimPrefix(strings.TrimPrefix(part, "Etcd"), "MySQL") // the prefix of a kind
		if !strings.Contains(suite, `{"`+part+`",`) && !strings.Contains(suite, `{"`+of+`",`) {
			t.Errorf("VERSION_TESTS names %s, which is no part of TestTogether", part)
		}
	}
}
