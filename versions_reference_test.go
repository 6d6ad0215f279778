package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// versionsPage is the one place that says what is supported, and versionsSeen what was seen
// of each version, on which day and with which commit.
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
	text.WriteString("\n| component | version | seen | recorded |\n|---|---|---|---|\n")
	for _, component := range []string{"Kubernetes", "PostgreSQL", "etcd", "MySQL", "processor"} {
		if len(versions[component]) == 0 {
			t.Errorf("there is no version of %s", component)
		}
		for _, version := range versions[component] {
			records := seen[component+" "+version]
			if len(records) == 0 {
				t.Errorf("%s has no line for %s %s", versionsSeen, component, version)
			}
			delete(seen, component+" "+version)
			for _, r := range records {
				fmt.Fprintf(&text, "| %s | %s | %s | %s, `%s` |\n", component, version, r.what, r.date, r.commit)
			}
		}
	}
	for _, left := range slices.Sorted(maps.Keys(seen)) {
		t.Errorf("%s has a line for %s, which no test is built of", versionsSeen, left)
	}
	return text.String()
}

// record is what was seen of a version, on which day and with which commit.
type record struct{ date, commit, what string }

// recordLine is a line of versionsSeen.
var recordLine = regexp.MustCompile(`^([^:]+): (\d{4}-\d\d-\d\d) ([0-9a-f]{8,40}): (.+)$`)

// readSeen is what was seen of each version.
func readSeen(t *testing.T) map[string][]record {
	t.Helper()
	seen := map[string][]record{}
	for line := range strings.Lines(page(t, versionsSeen)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		found := recordLine.FindStringSubmatch(line)
		if found == nil {
			t.Errorf("%s: %q is not of the form component version: date commit: what was seen", versionsSeen, line)
			continue
		}
		if _, err := time.Parse(time.DateOnly, found[2]); err != nil {
			t.Errorf("%s: %q: %v", versionsSeen, line, err)
		}
		seen[found[1]] = append(seen[found[1]], record{found[2], found[3], found[4]})
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
	found := regexp.MustCompile(`(?m)^` + variable + ` [?:]= (.*)$`).FindStringSubmatch(page(t, "Makefile"))
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

// Commits that are recorded are those of this repository.
func TestSeenCommitsExist(t *testing.T) {
	shallow, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--is-shallow-repository").Output()
	if err != nil || strings.TrimSpace(string(shallow)) != "false" {
		t.Skipf("this is no whole Git clone: %v", err)
	}
	for of, records := range readSeen(t) {
		for _, r := range records {
			if err := exec.CommandContext(t.Context(), "git", "merge-base", "--is-ancestor", r.commit, "HEAD").Run(); err != nil {
				t.Errorf("%s: %s names %s, which is no commit before this one: %v", versionsSeen, of, r.commit, err)
			}
		}
	}
}

// make versions-test replaces a line of what it ran before, and adds one to others.
func TestRecordVersion(t *testing.T) {
	const short = "the short list (`make versions-test`)"
	const before = "# What was seen.\nKubernetes 1.37.2: 2026-01-01 0123abcd: " + short + "\nKubernetes 1.36.3: 2026-01-01 0123abcd: all tests\netcd 3.7: 2026-01-01 0123abcd: programs\n"
	file := filepath.Join(t.TempDir(), "seen.txt")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"Kubernetes 1.37.2", "Kubernetes 1.36.3", "Kubernetes 1.38.0", "Kubernetes 1.36.3"} {
		command := exec.CommandContext(t.Context(), "test/record-version.sh", file, of, short)
		command.Env = append(os.Environ(), "DATE=2026-02-03", "COMMIT=89abcdef")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	const recorded = ": 2026-02-03 89abcdef: " + short + "\n"
	want := "# What was seen.\nKubernetes 1.37.2" + recorded + "Kubernetes 1.36.3: 2026-01-01 0123abcd: all tests\nKubernetes 1.36.3" + recorded + "etcd 3.7: 2026-01-01 0123abcd: programs\nKubernetes 1.38.0" + recorded
	if got := page(t, file); got != want {
		t.Errorf("the file is\n%s\nwant\n%s", got, want)
	}
	if list := page(t, versionsSeen); !strings.Contains(list, strings.Join(makeList(t, "SHORT_LIST"), " ")+"\n") {
		t.Errorf("%s has no line with the words that make versions-test writes", versionsSeen)
	}
}
