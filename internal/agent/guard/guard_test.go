package guard

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
)

// envGuardScript has TestGuardedProcess be a guard whose agent is a shell.
const envGuardScript = "HOLDFAST_TEST_GUARD_SCRIPT"

// TestGuardedProcess is no test: it is the first process of a namespace that
// another test makes.
func TestGuardedProcess(t *testing.T) {
	script := os.Getenv(envGuardScript)
	if script == "" {
		t.Skip("only within another test")
	}
	address := cmp.Or(os.Getenv(envTestAddress), "127.0.0.1:0")
	g := &Guard{
		Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(),
		Socket: filepath.Join(t.TempDir(), "none"), Address: address, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	code, err := g.Run()
	if err != nil {
		t.Fatal(err)
	}
	os.Exit(code)
}

// newGuarded prepares a script under a guard that is the first process of a
// namespace, as in a container.
func newGuarded(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestGuardedProcess$")
	cmd.Env = append(os.Environ(), envGuardScript+"="+script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	return cmd
}

// startGuarded starts what newGuarded prepared.
func startGuarded(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	err := cmd.Start()
	// A run as root, as in CI, must not pass without these tests.
	if errors.Is(err, syscall.EPERM) && os.Getuid() != 0 {
		t.Skip("this user may create no process namespace: run the tests as root")
	}
	if err != nil {
		t.Fatalf("a guard in a process namespace, which needs CAP_SYS_ADMIN: %v", err)
	}
	// A guard that is stopped, or waits, does not outlive a test that failed.
	t.Cleanup(func() { _ = cmd.Process.Kill() })
}

func guarded(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := newGuarded(t, script)
	startGuarded(t, cmd)
	return cmd
}

func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode()
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Kill()
		t.Fatal("the guard does not end")
		return 0
	}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// An agent that is killed again and again is started again, and nothing that it
// had started goes on, wherever that works.
func TestGuardKillsAllThatAnAgentLeaves(t *testing.T) {
	const script = `
echo start >>starts
[ ! -e child ] || ! kill -0 $(cat child) 2>/dev/null || echo left >>left
[ $(wc -l <starts) -lt 7 ] || exit 0
here=$PWD
cd / && setsid sh -c 'trap "" TERM INT HUP QUIT; echo $$ >'$here'/child.new; mv '$here'/child.new '$here'/child; while :; do sleep 1; done' &
while [ "$(cat child 2>/dev/null)" = "$before" ]; do sleep 0.05; done
kill -KILL $$`
	cmd := guarded(t, "before=$(cat child 2>/dev/null)\n"+script)
	if code := exitCode(t, cmd); code != 0 {
		t.Errorf("exit code %d after an agent that ended in order", code)
	}
	if got := lines(t, filepath.Join(cmd.Dir, "starts")); len(got) != 7 {
		t.Errorf("%d starts of an agent that was killed six times", len(got))
	}
	if got := lines(t, filepath.Join(cmd.Dir, "left")); len(got) != 0 {
		t.Errorf("a process of a killed agent was alive beside the next, %d times", len(got))
	}
}

// A stop is passed on, and its exit code is the container's.
func TestGuardPassesSignalsAndExitCodesOn(t *testing.T) {
	cmd := guarded(t, `trap 'exit 7' TERM; echo up >up; while :; do sleep 0.1; done`)
	agenttest.WaitUntil(t, func() bool { return len(lines(t, filepath.Join(cmd.Dir, "up"))) > 0 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, cmd); code != 7 {
		t.Errorf("exit code %d, want the agent's", code)
	}
}

// What an agent cannot start with is the kubelet's to report.
func TestGuardEndsWhereNoAgentStarts(t *testing.T) {
	cmd := guarded(t, `echo start >>starts; exit 3`)
	if code := exitCode(t, cmd); code != 3 {
		t.Errorf("exit code %d, want the agent's", code)
	}
	if got := lines(t, filepath.Join(cmd.Dir, "starts")); len(got) != vainStarts {
		t.Errorf("%d starts", len(got))
	}
}

// Only a container's first process may kill all others.
func TestGuardRefusesToRunBesideOthers(t *testing.T) {
	g := &Guard{Path: "/bin/true", Args: []string{"true"}, Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)}
	if _, err := g.Run(); err == nil {
		t.Error("a guard runs that is not the first process")
	}
}

// readiness is what the kubelet gets.
func readiness(p *agentProbe) (code int, text string) {
	w := httptest.NewRecorder()
	p.newHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// A database stays behind its Services while its agent hangs for a moment, and
// leaves at once when the agent says so.
func TestGuardAnswersByTheLastReport(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := listenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	var status atomic.Int32
	status.Store(http.StatusOK)
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			_, _ = w.Write([]byte("the agent's"))
			return
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte("report"))
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	p := newAgentProbe(socket)
	if code, _ := readiness(p); code != http.StatusServiceUnavailable {
		t.Errorf("%d before the agent has reported", code)
	}
	p.askAgent(t.Context())
	if code, text := readiness(p); code != http.StatusOK || text != "report" || !p.hasAnswered() {
		t.Errorf("%d %q", code, text)
	}
	status.Store(http.StatusServiceUnavailable)
	p.askAgent(t.Context())
	if code, text := readiness(p); code != http.StatusServiceUnavailable || text != "report" {
		t.Errorf("the agent said no: %d %q", code, text)
	}
	// The kubelet probes when the agent has labelled its pod, and then not for a while.
	status.Store(http.StatusOK)
	if code, text := readiness(p); code != http.StatusOK || text != "report" {
		t.Errorf("the agent says yes now: %d %q", code, text)
	}
	p.askAgent(t.Context())

	w := httptest.NewRecorder()
	p.newHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Body.String() != "the agent's" {
		t.Errorf("metrics: %d %q", w.Code, w.Body.String())
	}

	// The agent hangs: attempts in vain, by the clock of the test.
	hang := func(d time.Duration) {
		for begin := p.answers.LastAttempt(); d > 0; d -= 3 * time.Second {
			p.answers = p.answers.Observe(begin+time.Second, begin+3*time.Second, false)
			begin += 3 * time.Second
		}
	}
	hang(17 * time.Second)
	if code, text := readiness(p); code != http.StatusOK {
		t.Errorf("an agent that hung for 17 s takes its database out: %d %q", code, text)
	}
	hang(17 * time.Second)
	if code, _ := readiness(p); code != http.StatusServiceUnavailable || p.isHung() {
		t.Errorf("an agent that hung for 34 s: %d, ended %v", code, p.isHung())
	}
	hang(30 * time.Second)
	if !p.isHung() {
		t.Error("an agent that hung for a minute is not ended")
	}
	p.resetReport("the agent has ended")
	if code, text := readiness(p); code != http.StatusServiceUnavailable || text != "the agent has ended" || p.isHung() || p.hasAnswered() {
		t.Errorf("%d %q", code, text)
	}
	// A connection that is accepted, and no answer: that is silence, too.
	_ = server.Close()
	mute, err := listenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	p.askAgent(t.Context())
	if p.answers.Silent() == 0 || p.hasAnswered() {
		t.Error("a socket that accepts and says nothing passes for an answer")
	}
}

// listenUnix listens at a socket that an earlier listener may have left.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}
