package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// life is one run of etcd.
type life struct {
	*etcdAgent
	server *process.Server
	// member is the ID of the data; empty in a first start.
	member string
	// Parameters, quota and hash of the trusted authorities that it runs with.
	choice choice
	limit  int64
	trust  string
	// declared is the hash of the configuration that was looked at last, and
	// next what it comes to where that differs from the one at the start.
	declared string
	next     choice
	// restart asks for another run; it holds one.
	restart chan struct{}
	health  *health.Health
	// recordDue is when to look at the register next, and versionKept says that
	// the volume knows the version that serves it; both are the upkeep's.
	recordDue   time.Duration
	versionKept bool
	// logJudged and logOld are the upkeep's, too: see judgeLog.
	logJudged, logOld bool

	mu sync.Mutex
	// voting is since when the member has had a vote and served.
	voting time.Time
	// last is the last line of the log that may be the reason of an end.
	last    logLine
	removed bool
	// newer says that the data is newer than this etcd.
	newer string
	// up says that etcd has answered, and self is the member's ID once its
	// start is on record.
	up   bool
	self string
	// answered says that it has answered clients.
	answered bool
	// elsewhere says that the register has the member on another volume.
	elsewhere string
	// heard is what etcd hears of a leader, and objection why an order to go on
	// alone is not obeyed.
	heard     hearing
	objection string
	// led says that etcd has run with a leader.
	led bool
	// storageVersion is that of the data, which follows that of all members.
	storageVersion string
}

// join starts on an empty volume, with the members that the ticket names.
func (a *etcdAgent) join(ctx context.Context, f facts) error {
	t := f.Ticket
	if err := a.gate.clearStart(); err != nil {
		return err
	}
	if err := begin(a.o.DataDir, t.MemberID); err != nil {
		return err
	}
	err := a.serve(ctx, start{Data: a.o.data(), State: etcdapi.JoinExisting, Cluster: t.InitialCluster}, f.Volume)
	if _, logged := readLog(a.o.data()); errors.Is(logged, errNoLog) {
		return errors.Join(err, begin(a.o.DataDir, ""))
	}
	return err
}

// serve runs etcd until it ends, must end, or ctx does.
func (a *etcdAgent) serve(ctx context.Context, s start, v volume) error {
	a.Report(agentapi.StateRecovering, "", "starts etcd")
	if err := a.writeTrust(); err != nil {
		return err
	}
	config, _ := a.Config.Current()
	l := &life{etcdAgent: a, member: v.Log.Member, limit: config.DataLimit, declared: config.Hash, restart: make(chan struct{}, 1), health: health.NewHealth("etcd", a.log)}
	trust, err := os.ReadFile(a.o.trust())
	if err != nil {
		return fmt.Errorf("read the trusted authorities: %w", err)
	}
	l.trust = agentapi.HashConfig(trust)
	if l.choice, err = a.choose(ctx, config); err != nil {
		return err
	}
	l.tell(config, l.choice)
	args := a.o.commandLine(a.release, s, l.choice.Parameters, l.limit)
	if l.server, err = a.programs.Serve(a.Lock, l.listen, "etcd", args...); err != nil {
		return err
	}
	return l.watch(ctx)
}

// startsBeforeFallback is how many starts in a row must come to nothing before
// the declared parameters are suspected.
const startsBeforeFallback = 3

// choose takes the declared parameters as far as etcd accepts them. What it
// refuses only when it starts is found out by starting without: first with
// those that worked last, then with none, then with all again.
func (a *etcdAgent) choose(ctx context.Context, config *agent.Config) (choice, error) {
	proven := provenParameters(a.o.DataDir)
	accepts := func(parameters map[string]string) error {
		args := a.o.commandLine(a.release, start{Data: nowhere}, parameters, config.DataLimit)
		return a.programs.accepts(ctx, args)
	}
	c, err := choose(config.Parameters, proven, accepts)
	if err != nil || len(c.Parameters) == 0 {
		return c, err
	}
	switch n := a.crashes % (startsBeforeFallback + 2); {
	case n < startsBeforeFallback:
		return c, nil
	case n == startsBeforeFallback && proven != nil && len(differing(proven, c.Parameters)) > 0:
		return choice{Parameters: proven, Refused: a.refused}, nil
	default:
		return choice{Parameters: map[string]string{}, Refused: a.refused}, nil
	}
}

// writeTrust gives etcd its certificates, and the bundle of authorities that it
// is started with.
func (a *etcdAgent) writeTrust() error {
	bundle, _ := a.Certificates.Current()
	if bundle == nil {
		return errors.New("the member has no certificate yet")
	}
	return errors.Join(atomicfile.WriteFile(a.o.trust(), bundle.CAPEM), a.writeCertificates(bundle))
}

func (a *etcdAgent) writeCertificates(bundle *statusserver.Bundle) error {
	file := func(name string) string { return filepath.Join(a.o.tls(), name) }
	return errors.Join(
		atomicfile.WriteFile(file("server.crt"), bundle.ServerCertPEM),
		atomicfile.WriteFile(file("server.key"), bundle.ServerKeyPEM),
		atomicfile.WriteFile(file("tls.crt"), bundle.CertPEM),
		atomicfile.WriteFile(file("tls.key"), bundle.KeyPEM))
}

// What etcd writes when it must not run any more.
const (
	saysRemoved = "the member has been permanently removed from the cluster"
	saysOlder   = "server version is lower than determined cluster version"
)

// listen hears etcd's log.
func (l *life) listen(line string) {
	parsed := parseLog(line)
	if !parsed.worth() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = parsed
	switch {
	case strings.Contains(parsed.String(), saysRemoved):
		l.removed = true
		l.again()
	case strings.Contains(parsed.String(), saysOlder):
		l.newer = "the data is of a newer version of etcd than the image's, and etcd cannot go back: set spec.version to the one before"
	}
}

// again asks for another run.
func (l *life) again() {
	select {
	case l.restart <- struct{}{}:
	default:
	}
}

// reason of an end, as the log has it.
func (l *life) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.Message == "" {
		return "its log does not say why"
	}
	return l.last.String()
}

// watch looks after the running etcd, until it ends or must.
func (l *life) watch(ctx context.Context) error {
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { l.observe(helpers) })
	running.Go(func() { l.upkeep(helpers) })
	running.Go(func() { l.health.Follow(helpers, l.Lock, l.connectAnew) })
	finish := func() { stop(); running.Wait(); l.keepVersion() }
	select {
	case <-ctx.Done():
		finish()
		l.stopPlanned()
	case <-l.restart:
		finish()
		l.stopPlanned()
	case <-l.server.Done():
		finish()
		l.kill()
	case <-l.health.Hung():
		l.kill()
		finish()
		return l.health.HungError()
	}
	return l.ended(ctx)
}

// ended says what an end means.
func (l *life) ended(ctx context.Context) error {
	l.mu.Lock()
	removed, up := l.removed, l.up
	l.older = l.newer
	l.mu.Unlock()
	if removed {
		log, err := readLog(l.o.data())
		l.gate.removed = log.Member
		l.log.Warn("the group has removed this member", "member", log.Member)
		return err
	}
	if l.older != "" || ctx.Err() != nil || l.stopped() {
		return nil
	}
	if !up {
		l.crashes++
		l.refused = "etcd does not start with the declared parameters: " + l.reason()
	}
	return errors.New("etcd ended by itself: " + l.reason())
}

// stopped says whether the end was our wish.
func (l *life) stopped() bool { return l.Store.Get().State == agentapi.StateStopping }

// kill ends etcd at once. Nothing is done on its volume before it has gone.
func (l *life) kill() {
	if err := l.server.Kill(syscall.SIGKILL); err != nil {
		l.log.Error("etcd was killed", "error", err.Error())
	}
}

// handOverLimit is how long a stop waits for another member to lead.
const handOverLimit = 5 * time.Second

// stopPlanned stops in order: out of the Services, the lead to another member,
// and only then etcd.
func (l *life) stopPlanned() {
	l.log.Info("stops etcd")
	l.Store.Update(func(s *agentapi.Status) {
		s.State, s.Message, s.Serving, s.Role = agentapi.StateStopping, "", false, v1alpha1.RoleMember
	})
	if err := l.handOver(); err != nil {
		l.log.Info("leadership was not transferred", "error", err.Error())
	}
	_ = l.server.Signal(syscall.SIGTERM)
	inOrder := l.server.Ended(l.o.StopTimeout)
	l.kill()
	l.log.Info("etcd has stopped", "inOrder", inOrder)
}

// handOver makes another member the leader, one that answers.
func (l *life) handOver() error {
	ctx, cancel := context.WithTimeout(context.Background(), handOverLimit)
	defer cancel()
	status, err := l.local.status(ctx)
	if err != nil || !leads(status) {
		return nil // it is not ours to give
	}
	_, list, err := l.local.members(ctx, l.local.peer)
	if err != nil {
		return err
	}
	self := hex(status.Header.MemberId)
	heirs := l.reachable(ctx, slices.DeleteFunc(list, func(m etcdapi.GroupMember) bool { return m.Learner || m.ID == self || m.Name == "" }))
	for _, heir := range heirs {
		move, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = l.local.moveLeader(move, heir.ID)
		cancel()
		if err == nil {
			l.log.Info("leadership was transferred", "to", heir.Name)
			return nil
		}
	}
	return err
}

// reachable are the members that answer on their peer port, the quickest first.
func (l *life) reachable(ctx context.Context, list []etcdapi.GroupMember) []etcdapi.GroupMember {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answers := make(chan *etcdapi.GroupMember, len(list))
	for _, m := range list {
		go func() {
			if _, _, err := l.local.members(ctx, m.PeerURL); err != nil {
				answers <- nil
				return
			}
			answers <- &m
		}()
	}
	var found []etcdapi.GroupMember
	for range list {
		if m := <-answers; m != nil {
			found = append(found, *m)
		}
	}
	return found
}
