//go:build e2e || soak

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildEtcdWriter makes the application that writes, once.
var buildEtcdWriter = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "holdfast-e2e-etcdwriter-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "etcdwriter")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./etcdwriter")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(path)
})

// writePause is the application's between two writes: long enough to leave the
// processor to the databases of other tests.
var writePause = 50 * time.Millisecond

func (etcdDatabase) applicationImage(t *testing.T) string {
	t.Helper()
	return clientImage(t)
}

// applicationCommand writes keys and reads the newest number back linearizably,
// over one client.
func (etcdDatabase) applicationCommand(c *subject, app *clientPod) []string {
	c.t.Helper()
	app.installApplication(c.t, connection, c.readSecret("-app"))
	return []string{"/tmp/etcdwriter", "-connection", connection, "-until", until, "-pause", writePause.String()}
}

func (etcdDatabase) writtenNumbers(c *subject, ordinal int) []int {
	c.t.Helper()
	var numbers []int
	for _, key := range strings.Fields(c.runEtcdctl(ordinal, "get", "--prefix", "--keys-only", "written/")) {
		n, err := strconv.Atoi(strings.TrimPrefix(key, "written/"))
		must(c.t, err, "read a key")
		numbers = append(numbers, n)
	}
	return numbers
}

// installApplication puts the application and what it connects with into its pod.
func (p *clientPod) installApplication(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	p.writeFiles(t, folder, files)
	program, err := buildEtcdWriter()
	must(t, err, "build the application")
	p.uploadProgram(t, "/tmp/etcdwriter", program)
}
