//go:build soak

package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// agentTestsTimeout is for the agent's own tests on one version.
const agentTestsTimeout = 20 * time.Minute

// agentOnEachMajor runs the agent's own tests on each major version that there
// is: they break volumes, Leases and databases as no cluster's owner would, so
// they need PostgreSQL itself, and no Kubernetes.
func agentOnEachMajor(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "agent.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "postgres", "-o", binary, "./internal/agent/postgres")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	must(t, err, "build the agent's tests: "+string(out))
	program, err := os.ReadFile(binary)
	must(t, err, "read the agent's tests")
	majors := map[string]bool{}
	for _, i := range env.images {
		if i.Engine == "postgres" {
			majors[i.Line] = true
		}
	}
	for major := range majors {
		have := imageVersions("postgres", major)
		t.Run(major, func(t *testing.T) { agentTests(t, program, have[len(have)-1]) })
	}
}

func agentTests(t *testing.T, program []byte, version string) {
	p := newClientOf(t, imageRef(t, "postgres", version))
	ctx, cancel := context.WithTimeout(t.Context(), agentTestsTimeout)
	defer cancel()
	p.uploadProgram(t, "/tmp/agent.test", program)
	var out bytes.Buffer
	if err := streamCommand(ctx, p.namespace, p.name, nil, &out, &out, "/tmp/agent.test", "-test.run", "^TestReal", "-test.v"); err != nil {
		t.Errorf("on PostgreSQL %s: %v\n%s", version, err, out.String())
	}
}
