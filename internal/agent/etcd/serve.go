package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// etcdRun is one run of etcd. It has many methods and fields, for the goroutines that
// supervise, observe and maintain the run share its end, its restart and its status;
// which of them a field belongs to is said at the field.
type etcdRun struct {
	*etcdAgent
	server *process.Server
	// member is the ID of the data; empty in a first start.
	member string
	// Parameters, quota and hash of the trusted authorities that it runs with.
	choice choice
	limit  int64
	trust  string
	// declared is the hash of the configuration that was read last, and
	// next what it comes to where that differs from the one at the start.
	declared string
	next     choice
	// restart asks for another run; it holds one.
	restart chan struct{}
	health  *health.Health
	// recordDue is when to check the membership record next, and versionKept says
	// that the volume knows the version that serves it; both are maintainRun's.
	recordDue   time.Duration
	versionKept bool
	// raftLogJudged and raftLogOld are maintainRun's, too: see judgeRaftLog.
	raftLogJudged, raftLogOld bool

	mu sync.Mutex
	// voting is since when the member has had a vote and served.
	voting time.Time
	// last is the last line of etcd's text log that may be the reason of an end.
	last    logLine
	removed bool
	// newer says that the data is newer than this etcd.
	newer string
	// up says that etcd has answered, and self is the member's ID once its
	// start is recorded.
	up   bool
	self string
	// answered says that it has answered clients.
	answered bool
	// elsewhere says that the membership record has the member on another volume.
	elsewhere string
	// heard is what etcd hears of a leader, and objection why a request to go on
	// alone is not followed.
	heard     leaderHistory
	objection string
	// led says that etcd has run with a leader.
	led bool
	// storageVersion is that of the data, which follows that of all members.
	storageVersion string
}

// joinGroup starts on an empty volume, with the members that the join grant names.
func (a *etcdAgent) joinGroup(ctx context.Context, f observation) error {
	t := f.JoinGrant
	if err := a.guard.clearStart(); err != nil {
		return err
	}
	if err := markBegun(a.o.DataDir, t.MemberID); err != nil {
		return err
	}
	err := a.serveEtcd(ctx, start{Data: a.o.etcdDir(), State: etcdapi.JoinExisting, Cluster: t.InitialCluster}, f.Volume)
	if _, logged := readRaftLog(a.o.etcdDir()); errors.Is(logged, errNoRaftLog) {
		return errors.Join(err, markBegun(a.o.DataDir, ""))
	}
	return err
}

// serveEtcd runs etcd until it ends, must end, or ctx does.
func (a *etcdAgent) serveEtcd(ctx context.Context, s start, v volume) error {
	a.ReportState(agentapi.StateRecovering, "", "starts etcd")
	if err := a.writeTrust(); err != nil {
		return err
	}
	config, _ := a.Config.Current()
	l := &etcdRun{etcdAgent: a, member: v.RaftLog.Member, limit: config.DataLimit, declared: config.Hash, restart: make(chan struct{}, 1), health: health.NewHealth("etcd", a.log)}
	trust, err := os.ReadFile(a.o.trustFile())
	if err != nil {
		return fmt.Errorf("read the trusted authorities: %w", err)
	}
	l.trust = agentapi.HashConfig(trust)
	if l.choice, err = a.chooseParameters(ctx, config); err != nil {
		return err
	}
	l.reportConfig(config, l.choice)
	args := a.o.commandLine(a.release, s, l.choice.Parameters, l.limit)
	if l.server, err = a.programs.Serve(a.Lock, l.readLogLine, "etcd", args...); err != nil {
		return err
	}
	return l.superviseRun(ctx)
}

// startsBeforeFallback is how many starts in a row must come to nothing before
// the declared parameters are suspected.
const startsBeforeFallback = 3

// chooseParameters takes the declared parameters as far as etcd accepts them. What it
// refuses only when it starts is found out by starting without: first with
// those that worked last, then with none, then with all again.
func (a *etcdAgent) chooseParameters(ctx context.Context, config *agent.Config) (choice, error) {
	proven := provenParameters(a.o.DataDir)
	accepts := func(parameters map[string]string) error {
		args := a.o.commandLine(a.release, start{Data: nowhere}, parameters, config.DataLimit)
		return a.programs.checkArguments(ctx, args)
	}
	c, err := chooseParameters(config.Parameters, proven, accepts)
	if err != nil || len(c.Parameters) == 0 {
		return c, err
	}
	switch n := a.crashes % (startsBeforeFallback + 2); {
	case n < startsBeforeFallback:
		return c, nil
	case n == startsBeforeFallback && proven != nil && !maps.Equal(proven, c.Parameters):
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
	return errors.Join(atomicfile.WriteFile(a.o.trustFile(), bundle.CAPEM), a.writeCertificates(bundle))
}

func (a *etcdAgent) writeCertificates(bundle *statusserver.Bundle) error {
	file := func(name string) string { return filepath.Join(a.o.etcdTLSDir(), name) }
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

// readLogLine reads a line of etcd's text log. It does not wait: etcd would.
func (l *etcdRun) readLogLine(line string) {
	l.Insights.Hear(line)
	parsed := parseLogLine(line)
	if !parsed.isReason() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = parsed
	switch {
	case strings.Contains(parsed.String(), saysRemoved):
		l.removed = true
		l.requestRestart()
	case strings.Contains(parsed.String(), saysOlder):
		l.newer = "the data is of a newer version of etcd than the image's, and etcd cannot go back: set spec.version to the one before"
	}
}

// requestRestart asks for another run.
func (l *etcdRun) requestRestart() {
	select {
	case l.restart <- struct{}{}:
	default:
	}
}

// explainEnd is the reason of an end, as etcd's text log has it.
func (l *etcdRun) explainEnd() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last.Message == "" {
		return "its log does not say why"
	}
	return l.last.String()
}

// superviseRun supervises the running etcd, until it ends or must.
func (l *etcdRun) superviseRun(ctx context.Context) error {
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { l.watchServer(helpers) })
	running.Go(func() { l.maintainRun(helpers) })
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
		l.killServer()
	case <-l.health.Hung():
		l.killServer()
		finish()
		return l.health.HungError()
	}
	return l.judgeEnd(ctx)
}

// judgeEnd says what an end means.
func (l *etcdRun) judgeEnd(ctx context.Context) error {
	l.mu.Lock()
	removed, up := l.removed, l.up
	l.older = l.newer
	l.mu.Unlock()
	if removed {
		log, err := readRaftLog(l.o.etcdDir())
		l.guard.removed = log.Member
		l.log.Warn("the group has removed this member", "member", log.Member)
		return err
	}
	if l.older != "" || ctx.Err() != nil || l.wasStopped() {
		return nil
	}
	if !up {
		l.crashes++
		l.refused = "etcd does not start with the declared parameters: " + l.explainEnd()
	}
	return errors.New("etcd ended by itself: " + l.explainEnd())
}

// wasStopped says whether the agent stopped etcd.
func (l *etcdRun) wasStopped() bool { return l.Store.Get().State == agentapi.StateStopping }

// killServer ends etcd at once. Nothing is done on its volume before it has gone.
func (l *etcdRun) killServer() {
	if err := l.server.Kill(syscall.SIGKILL); err != nil {
		l.log.Error("etcd was killed", "error", err.Error())
	}
}

// transferLimit is how long a stop waits for another member to lead.
const transferLimit = 5 * time.Second

// stopPlanned stops in order: out of the Services, the lead to another member,
// and only then etcd. Clients that connect anew find another one by then.
func (l *etcdRun) stopPlanned() {
	l.log.Info("stops etcd")
	l.Store.Update(func(s *agentapi.Status) {
		s.State, s.Message, s.Serving, s.Role = agentapi.StateStopping, "", false, v1alpha1.RoleMember
	})
	drained := time.After(l.o.DrainTime)
	if err := l.transferLeadership(); err != nil {
		l.log.Info("leadership was not transferred", "error", err.Error())
	}
	if l.isOneOfSeveral() {
		select {
		case <-drained:
		case <-l.server.Done():
		}
	}
	_ = l.server.Signal(syscall.SIGTERM)
	inOrder := l.server.Ended(l.o.StopTimeout)
	l.killServer()
	l.log.Info("etcd has stopped", "inOrder", inOrder)
}

// isOneOfSeveral says whether there are other members, to which clients can go.
func (l *etcdRun) isOneOfSeveral() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, list, err := l.local.fetchMembers(ctx, l.local.peer)
	return err == nil && len(list) > 1
}

// transferLeadership makes another member the leader, one that answers.
func (l *etcdRun) transferLeadership() error {
	ctx, cancel := context.WithTimeout(context.Background(), transferLimit)
	defer cancel()
	status, err := l.local.fetchStatus(ctx)
	if err != nil || !isLeading(status) {
		return nil // it is not ours to give
	}
	_, list, err := l.local.fetchMembers(ctx, l.local.peer)
	if err != nil {
		return err
	}
	self := formatID(status.Header.MemberId)
	successors := l.findReachable(ctx, slices.DeleteFunc(list, func(m etcdapi.GroupMember) bool { return m.Learner || m.ID == self || m.Name == "" }))
	for _, successor := range successors {
		move, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = l.local.moveLeader(move, successor.ID)
		cancel()
		if err == nil {
			l.log.Info("leadership was transferred", "to", successor.Name)
			return nil
		}
	}
	return err
}

// findReachable finds the members that answer on their peer port, the quickest first.
func (l *etcdRun) findReachable(ctx context.Context, list []etcdapi.GroupMember) []etcdapi.GroupMember {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answers := make(chan *etcdapi.GroupMember, len(list))
	for _, m := range list {
		go func() {
			if _, _, err := l.local.fetchMembers(ctx, m.PeerURL); err != nil {
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
