//go:build e2e || soak

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fluxNamespace is where Flux runs.
const fluxNamespace = "flux-system"

// machineAddress is this machine's on the cluster's network, which pods reach.
const machineAddress = "10.89.0.254"

// repository is a Git repository, and what Flux's source-controller does with
// one: every commit is packed, served, and announced in the status of a
// GitRepository of that name.
type repository struct {
	t               *testing.T
	namespace, name string
	dir, url        string

	mu       sync.Mutex
	archives map[string][]byte // by the path that they are served at
}

func newRepository(t *testing.T, namespace, name string) *repository {
	t.Helper()
	r := &repository{t: t, namespace: namespace, name: name, dir: t.TempDir(), archives: map[string][]byte{}}
	listener, err := net.Listen("tcp", net.JoinHostPort(machineAddress, "0"))
	must(t, err, "listen where pods reach this machine")
	r.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: r, ReadHeaderTimeout: requestTimeout}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	r.runGit("init", "--quiet", "--initial-branch=main")
	return r
}

// ServeHTTP answers with a commit's archive.
func (r *repository) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	archive, found := r.archives[request.URL.Path]
	r.mu.Unlock()
	if !found {
		http.NotFound(w, request)
		return
	}
	if _, err := w.Write(archive); err != nil {
		r.t.Logf("serve %s: %v", request.URL.Path, err)
	}
}

func (r *repository) runGit(arguments ...string) []byte {
	r.t.Helper()
	command := exec.CommandContext(r.t.Context(), "git", arguments...)
	command.Dir = r.dir
	command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=e2e", "GIT_AUTHOR_EMAIL=e2e@example.com", "GIT_COMMITTER_NAME=e2e", "GIT_COMMITTER_EMAIL=e2e@example.com")
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		r.t.Fatalf("git %s: %v: %s", arguments[0], err, complaint.String())
	}
	return out
}

// commitFiles writes files, by their paths, and publishes the commit. A file of no
// content is removed. It returns the revision, as Flux writes it.
func (r *repository) commitFiles(message string, files map[string]string) string {
	r.t.Helper()
	for name, content := range files {
		path := filepath.Join(r.dir, name)
		if content == "" {
			must(r.t, os.Remove(path), "remove from the repository")
			continue
		}
		must(r.t, os.MkdirAll(filepath.Dir(path), 0o755), "write to the repository")
		must(r.t, os.WriteFile(path, []byte(content), 0o644), "write to the repository")
	}
	r.runGit("add", "--all")
	r.runGit("commit", "--quiet", "--message", message)
	return r.publishCommit()
}

// revertCommit is git revert of the last commit.
func (r *repository) revertCommit() string {
	r.t.Helper()
	r.runGit("revert", "--no-edit", "HEAD")
	return r.publishCommit()
}

// publishCommit does what source-controller does with a new commit.
func (r *repository) publishCommit() string {
	r.t.Helper()
	commit := strings.TrimSpace(string(r.runGit("rev-parse", "HEAD")))
	archive := r.runGit("archive", "--format=tar.gz", "HEAD")
	path := "/" + commit + ".tar.gz"
	r.mu.Lock()
	r.archives[path] = archive
	r.mu.Unlock()
	revision := "main@sha1:" + commit
	now := metav1.Now().UTC().Format(time.RFC3339)
	source := r.gitRepository()
	source.Object["status"] = map[string]any{
		"observedGeneration": int64(1),
		"artifact": map[string]any{
			"digest": fmt.Sprintf("sha256:%x", sha256.Sum256(archive)), "lastUpdateTime": now, "path": path,
			"revision": revision, "size": int64(len(archive)), "url": r.url + path,
		},
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "Succeeded", "observedGeneration": int64(1),
			"lastTransitionTime": now, "message": "stored artifact for revision '" + revision + "'",
		}},
	}
	err := env.client.SubResource("status").Patch(r.t.Context(), source, client.Apply, client.FieldOwner("e2e-source"), client.ForceOwnership) //nolint:staticcheck // unstructured has no apply configuration
	must(r.t, err, "announce a commit to Flux")
	return revision
}

func (r *repository) gitRepository() *unstructured.Unstructured {
	return fluxObject("source.toolkit.fluxcd.io/v1", "GitRepository", r.namespace, r.name)
}

// createSource makes the GitRepository that the commits are announced in.
func (r *repository) createSource() {
	r.t.Helper()
	source := r.gitRepository()
	source.Object["spec"] = map[string]any{"url": "https://git.example.com/" + r.name + ".git", "interval": "1h"}
	must(r.t, env.client.Create(r.t.Context(), source), "create a GitRepository")
}

func fluxObject(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// readTree reads a folder of this source tree, as files of a repository under the
// same path.
func readTree(t *testing.T, folder string) map[string]string {
	t.Helper()
	const root = "../.."
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err // links have no place in Flux's artifacts either
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		files[name] = string(content)
		return err
	})
	must(t, err, "read "+folder)
	return files
}

// fluxUp brings Flux's kustomize-controller up on the local cluster; where it
// was never built this takes minutes.
var fluxUp = sync.OnceValue(func() error {
	dir, err := filepath.Abs(state)
	if err != nil {
		return err
	}
	command := exec.CommandContext(context.Background(), "go", "run", ".", "flux", "--dir", dir)
	command.Dir = "../cluster"
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return command.Run()
})

func needFlux(t *testing.T) {
	t.Helper()
	needImages(t, "postgres", "17", 1)
	must(t, fluxUp(), "bring Flux up")
}
