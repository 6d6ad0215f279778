// Package guard is the process above a member's agent: the first of the database's
// container. It starts the agent again when it ends, and answers the kubelet's probes.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
)

// EnvGuard is set by the guard for its agent: the socket on which the agent
// answers the guard's questions.
const EnvGuard = "HOLDFAST_GUARD"

// Limits of the guard.
const (
	// guardPause and guardPauseMost are between two starts of the agent.
	guardPause     = 100 * time.Millisecond
	guardPauseMost = 10 * time.Second
	// guardCalm is how long an agent must have run before the pause is the
	// shortest again.
	guardCalm = time.Minute
	// clearLimit is how long killed processes may take to end.
	clearLimit = 10 * time.Second
	// vainStarts is how many agents in a row may end by themselves before they
	// have answered once. The container ends then: what is wrong with its image
	// or its environment is the kubelet's to report.
	vainStarts = 3
	// startReport is the readiness until an agent answers.
	startReport = "the agent is starting"
)

// Exit is the code that the guard ends with.
type Exit struct{ Code int }

func (e *Exit) Error() string { return fmt.Sprintf("the agent ended with code %d", e.Code) }

// Guard is the first process of a database's container. The agent is its child:
// when that ends without having been asked to, no process of the container may
// go on without it, so the guard kills them all, collects them, and starts the
// agent again, without the kubelet's back-off. It answers the kubelet's probes
// by what the agent reported last, so that an agent that hangs for a moment
// takes no database out of its Services; an agent that hangs for long is ended
// like one that died.
//
// An agent may give it a deadline, and extend it again and again: see Deadline.
// When that passes, every process of the container is killed, whether or not the
// agent still answers, and a new agent is started.
type Guard struct {
	// Path, Args and Env of the agent.
	Path string
	Args []string
	Env  []string
	// Socket is where the agent answers, Address where the kubelet asks.
	Socket, Address string
	Log             *slog.Logger

	probe *agentProbe
	// fences counts the deadlines that have passed.
	fences int64
}

// RunGuarded runs the agent that this process was to be as a child.
func RunGuarded(socket, address string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the running binary: %w", err)
	}
	g := &Guard{
		Path: self, Args: os.Args, Env: append(os.Environ(), EnvGuard+"="+socket), Socket: socket, Address: address,
		Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("pod", os.Getenv("POD_NAME"), "process", "guard"),
	}
	code, err := g.Run()
	if err == nil && code != 0 {
		err = &Exit{code}
	}
	return err
}

// Run runs the agent until it ends in order, and returns its exit code. It must
// be the first process of its container: it kills every other.
func (g *Guard) Run() (int, error) {
	if os.Getpid() != 1 {
		return 1, errors.New("only the first process of a container guards an agent: it kills all others")
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	listener, err := net.Listen("tcp", g.Address)
	if err != nil {
		return 1, fmt.Errorf("listen for probes: %w", err)
	}
	g.probe = newAgentProbe(g.Socket)
	go func() {
		if err := statusserver.Serve(ctx, listener, g.probe.newHandler(), nil); err != nil {
			g.Log.Error("probes are not answered", "error", err.Error())
		}
	}()
	go g.probe.followAgent(ctx)
	return g.runAgents(signals), nil
}

// runAgents starts the agent again and again until the container is to end.
func (g *Guard) runAgents(signals <-chan os.Signal) int {
	pause, vain, report := time.Duration(0), 0, startReport
	for {
		began := time.Now()
		end := g.runAgent(signals, report)
		ending := "the agent has ended"
		report = startReport
		if end.fenced {
			g.fences++
			ending, report = fenceReport, fenceReport
		}
		g.probe.resetReport(ending)
		if end.orderly {
			return end.code
		}
		left := end.left || clearContainer(clearLimit)
		g.Log.Error("the agent has ended: every process of the container was killed", "end", end.String(), "processesLeft", left)
		if left || end.stopping {
			return max(end.code, 1)
		}
		if vain++; end.answered || !end.status.Exited() {
			vain = 0
		}
		if vain >= vainStarts {
			return max(end.code, 1)
		}
		if time.Since(began) > guardCalm {
			pause = 0
		}
		select {
		case <-signals:
			return 0 // nothing runs
		case <-time.After(pause):
		}
		pause = min(max(2*pause, guardPause), guardPauseMost)
	}
}

// agentEnd is how an agent ended.
type agentEnd struct {
	status syscall.WaitStatus
	code   int
	err    error
	// orderly: it was asked to end, or ended without a failure, by itself.
	orderly bool
	// stopping: it was asked to end.
	stopping bool
	// answered: it has answered at least once.
	answered bool
	hung     bool
	// fenced: its deadline passed, and all processes were killed late after that.
	fenced bool
	late   time.Duration
	// left: it was killed, and does not end.
	left bool
}

// recordStatus takes in what the kernel reports of an agent that ended.
func (e *agentEnd) recordStatus(status syscall.WaitStatus) {
	e.status, e.code = status, status.ExitStatus()
	if status.Signaled() {
		e.code = 128 + int(status.Signal())
	}
	e.orderly = status.Exited() && (e.stopping || e.code == 0) && !e.fenced
}

func (e agentEnd) String() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case e.fenced:
		return "the Lease was not renewed in time: killed " + e.late.String() + " after the deadline"
	case e.hung:
		return "it did not answer for " + health.HungLimit.String()
	case e.status.Signaled():
		return e.status.Signal().String()
	}
	return fmt.Sprintf("exit code %d", e.code)
}

// runAgent runs one agent to its end. Signals are passed on to it. The report is
// the readiness until it answers.
func (g *Guard) runAgent(signals <-chan os.Signal, report string) agentEnd {
	g.probe.resetReport(report)
	fence, err := newFence(g.fences)
	if err != nil {
		// The agent finds no EnvDeadline, and decides what it may do then.
		g.Log.Warn("the agent runs without a deadline", "error", err.Error())
	}
	defer fence.endFence()
	process, err := fence.startAgent(g.Path, g.Args, g.Env)
	if err != nil {
		return agentEnd{code: 1, err: fmt.Errorf("start the agent: %w", err)}
	}
	go fence.watchDeadline()
	ended := make(chan syscall.WaitStatus, 1)
	go func() { ended <- collectUntil(process.Pid) }()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var end agentEnd
	var limit <-chan time.Time
	passed := fence.passed
	for {
		select {
		case s := <-signals:
			end.stopping = true
			_ = process.Signal(s)
		case <-ticker.C:
			if g.probe.isHung() && !end.hung {
				end.hung = true
				_ = process.Kill()
			}
		case <-passed:
			passed, limit = nil, time.After(clearLimit)
			g.probe.resetReport(fenceReport)
		case <-limit:
			end.left = true
			end.fenced, end.late = fence.endFence()
			return end
		case status := <-ended:
			end.fenced, end.late = fence.endFence()
			// An agent that had set a deadline did not fail to start.
			end.answered = end.fenced || g.probe.hasAnswered()
			end.recordStatus(status)
			return end
		}
	}
}

// collectUntil collects every child that ends, those that were left to the first
// process included, until the one of the given number has ended.
func collectUntil(pid int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0xff00 // there is no child: one that was never heard of again
		case got == pid:
			return status
		}
	}
}

// clearContainer kills every process but this one, the first, and collects them.
// It says whether any is left after the limit.
func clearContainer(limit time.Duration) (left bool) {
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		// Each time anew: one may have been started meanwhile.
		err := syscall.Kill(-1, syscall.SIGKILL)
		for {
			if got, waited := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); waited != nil || got <= 0 {
				break
			}
		}
		if errors.Is(err, syscall.ESRCH) {
			return false
		}
		if time.Now().After(deadline) {
			return true
		}
	}
}
