//go:build e2e || soak

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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

// etcdWriter writes a key every 10 ms and reads the newest number back
// linearizably, over one client in a pod of its own.
type etcdWriter struct {
	t    *testing.T
	app  *clientPod
	c    *subject
	done chan struct{}
	told *tale
}

// tale is what the application told.
type tale struct {
	mu sync.Mutex
	// acked are the numbers that were acknowledged, and when.
	acked map[string]time.Duration
	stale []string
	// newest is when the last one was acknowledged, and gap the longest time
	// without one.
	newest, gap time.Duration
}

// startEtcdWriter writes until stop, or the test's end.
func startEtcdWriter(c *subject) *etcdWriter {
	c.t.Helper()
	w := &etcdWriter{t: c.t, app: newClient(c.t), c: c, done: make(chan struct{}), told: &tale{acked: map[string]time.Duration{}}}
	w.app.install(c.t, connection, c.secret("-app"))
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	go func() {
		err := stream(ctx, w.app.namespace, w.app.name, nil, in, io.Discard, "/tmp/etcdwriter", "-connection", connection)
		in.CloseWithError(err)
	}()
	go func() {
		defer close(w.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			w.told.hear(lines.Text())
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-w.done
	})
	w.goesOn()
	return w
}

// install puts the application and what it connects with into its pod.
func (p *clientPod) install(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	_, err := run(t.Context(), p.namespace, p.name, "", "mkdir", "-p", folder)
	must(t, err, "make a folder")
	for name, content := range files {
		p.write(t, folder+"/"+name, string(content))
	}
	program, err := buildEtcdWriter()
	must(t, err, "build the application")
	p.upload(t, "/tmp/etcdwriter", program)
}

// upload puts a program into the pod.
func (p *clientPod) upload(t *testing.T, path string, program []byte) {
	t.Helper()
	var out bytes.Buffer
	err := stream(t.Context(), p.namespace, p.name, bytes.NewReader(program), &out, &out, "sh", "-c", "cat > "+path+" && chmod +x "+path)
	must(t, err, "copy "+path+": "+out.String())
}

func (s *tale) hear(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var number, millis int64
	switch n, _ := fmt.Sscanf(line, "ack %d %d", &number, &millis); {
	case n == 2:
		at := time.Duration(millis) * time.Millisecond
		if len(s.acked) > 0 {
			s.gap = max(s.gap, at-s.newest)
		}
		s.acked[fmt.Sprintf("%012d", number)], s.newest = at, at
	case strings.HasPrefix(line, "stale"):
		s.stale = append(s.stale, line)
	}
}

// takeGap is the longest time without an acknowledgement since the last call.
func (w *etcdWriter) takeGap() time.Duration {
	w.told.mu.Lock()
	defer w.told.mu.Unlock()
	gap := w.told.gap
	w.told.gap = 0
	return gap
}

func (w *etcdWriter) count() int {
	w.told.mu.Lock()
	defer w.told.mu.Unlock()
	return len(w.told.acked)
}

func (w *etcdWriter) with(t *testing.T) writing {
	part := *w
	part.t = t
	return &part
}

func (w *etcdWriter) goesOn() {
	w.t.Helper()
	before := w.count()
	eventually(w.t, serviceTimeout, "writes go on", func(context.Context) error {
		if now := w.count(); now < before+3 {
			return fmt.Errorf("%d acknowledged after %d", now, before)
		}
		return nil
	})
}

func (w *etcdWriter) stop() {
	w.t.Helper()
	w.app.write(w.t, "/tmp/stop", "stop")
	eventually(w.t, execTimeout, "the writer ends", func(context.Context) error {
		select {
		case <-w.done:
			return nil
		default:
			return errors.New("it still runs")
		}
	})
	w.verify()
	w.t.Logf("%d writes acknowledged", len(w.told.acked))
}

// verify wants everything that was acknowledged to be there.
func (w *etcdWriter) verify() {
	w.t.Helper()
	lost := maps.Clone(w.told.acked)
	for _, line := range strings.Fields(w.c.etcdctl(0, "get", "--prefix", "--keys-only", "written/")) {
		delete(lost, strings.TrimPrefix(line, "written/"))
	}
	if len(lost) > 0 || len(w.told.acked) == 0 {
		w.t.Errorf("%d of %d acknowledged writes are lost: %v", len(lost), len(w.told.acked), lost)
	}
	if len(w.told.stale) > 0 {
		w.t.Errorf("linearizable reads were older than acknowledged writes: %v", w.told.stale)
	}
}
