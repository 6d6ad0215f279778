package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/insights"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/anomaly"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// etcdAgent is the process beside etcd.
type etcdAgent struct {
	*agent.Host
	o       Options
	log     *slog.Logger
	version string // of etcd in the image
	release release

	programs programs
	guard    *startGuard
	local    *local

	// crashes counts starts in a row that came to nothing, and refused is why
	// the declared parameters were last set aside for that.
	crashes int
	refused string
	// snapshotFailed says that a snapshot for the next version could not be had.
	snapshotFailed bool
	// older is what etcd says of data that is newer than itself.
	older string
}

// Run supervises etcd until ctx ends, and then until it has stopped in order.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(ctx, o)
	if err != nil {
		return err
	}
	return a.runAgent(ctx)
}

func (a *etcdAgent) runAgent(ctx context.Context) error {
	err := a.Run(ctx, func(context.Context) {}, a.metricsHandler(), a.repeatSteps)
	a.local.closeClients()
	return err
}

func newAgent(ctx context.Context, o Options) (*etcdAgent, error) {
	a := &etcdAgent{o: o, log: o.Log, programs: programs{process.Programs{Dir: o.BinDir, Processes: process.NewProcesses()}}}
	version, release, err := a.programs.readVersion(ctx)
	if err != nil {
		return nil, err
	}
	a.version, a.release = version, release
	space := func() diskspace.Space { return diskspace.SpaceOf(o.DataDir) }
	a.Host = agent.NewHost(agent.HostOptions{
		Identity: o.Identity, Version: o.Version, Client: o.Client, Log: o.Log, DatabaseVersion: version,
		TLSDir: o.TLSDir, ConfigFile: o.ConfigFile, StatusAddress: o.StatusAddress, ProbeAddress: o.ProbeAddress,
		Space:      space,
		Allocate:   func() error { return diskspace.AllocateIn(o.DataDir) },
		OmitMoving: omitMoving,
		DataDir:    o.DataDir,
		// JSON is read as a whole, so more of a line is taken.
		TextLog: &insights.TextLog{Parse: loginsight.ParseEtcd, Longest: 4 << 10},
		Measure: func(context.Context) (*tuning.Sample, error) { return measureTuning(a.Store.Get()), nil },
		Signals: &anomalies.Signals{List: anomaly.EtcdSignals, Measure: (&signalReader{fetch: a.fetchMetrics}).measureSignals},
		RunDir:  o.RunDir,
	})
	a.local = newLocal(a.Certificates, o)
	pod, peers := o.Identity.Pod, statusserver.NewPeers(a.Certificates, o.AgentAddress, agentapi.DecodeStatus[etcdapi.GroupStatus])
	a.guard = &startGuard{
		pod: pod, dir: o.DataDir, version: version, log: o.Log, space: space,
		config:     func() *agent.Config { config, _ := a.Config.Current(); return config },
		membership: leaseclient.NewMembershipLease(o.Identity, leaseLabels(o.Identity.Cluster), a.ListOwners, o.Client),
		confirm: func(ctx context.Context, t etcdapi.JoinGrant, data raftLogState) confirmation {
			return a.local.confirmGrant(ctx, t, data, pod)
		},
		findObjection: func(ctx context.Context, data raftLogState) string {
			others := slices.DeleteFunc(slices.Clone(a.ListMembers()), func(other string) bool { return other == pod })
			return findOthersObjection(ctx, others, data, peers.Status)
		},
	}
	if err := os.MkdirAll(o.etcdTLSDir(), 0o700); err != nil {
		return nil, fmt.Errorf("make the run directory: %w", err)
	}
	return a, nil
}

func leaseLabels(cluster string) map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster:        cluster,
		v1alpha1.LabelKind:           "etcdcluster",
		v1alpha1.LabelManagedBy:      v1alpha1.ManagedBy,
		"app.kubernetes.io/name":     "etcd",
		"app.kubernetes.io/instance": cluster,
	}
}

// Pauses between two observations while etcd does not run.
const (
	pauseWaiting = 500 * time.Millisecond
	pauseAsking  = time.Second // each observation asks the API server
	pauseHeld    = time.Second
	pauseOlder   = 15 * time.Second // only another image helps
)

// repeatSteps observes, plans and does one thing, again and again, until ctx ends.
func (a *etcdAgent) repeatSteps(ctx context.Context) { a.RunLoop(ctx, a.o.DataDir, a.doStep) }

// doStep does the next thing, and says how long to wait before the one after.
func (a *etcdAgent) doStep(ctx context.Context) (time.Duration, error) {
	if a.older != "" {
		a.ReportState(agentapi.StateHeld, agentapi.HoldDataVersion, a.older)
		return pauseOlder, nil
	}
	d, f, err := a.guard.planNext(ctx)
	if err != nil {
		return 0, err
	}
	// What etcd heard counts for one step: after another, a quorum may be back.
	a.guard.leaderless = ""
	a.reportVolume(d, f)
	switch d.Action {
	case actHold:
		a.ReportState(agentapi.StateHeld, d.Hold, d.Message)
		return pauseHeld, nil
	case actWait:
		a.ReportState(agentapi.StateWaiting, "", d.Message)
		if f.needsMembership() {
			return pauseAsking, nil
		}
		return pauseWaiting, nil
	case actBootstrap:
		a.ReportState(agentapi.StateInitializing, "", d.Message)
		return 0, a.bootstrapCluster(ctx, f)
	case actRecover:
		if objection := a.guard.findObjection(ctx, f.Volume.RaftLog); objection != "" {
			a.log.Warn("does not go on alone", "because", objection)
			return 0, nil
		}
		a.ReportState(agentapi.StateInitializing, "", d.Message)
		return 0, a.recoverQuorum(ctx, f)
	case actJoin:
		return 0, a.joinGroup(ctx, f)
	case actStart:
		if err := a.snapshotOldEntries(ctx, f.Volume); err != nil {
			return 0, err
		}
		return 0, a.serveEtcd(ctx, start{Data: a.o.etcdDir()}, f.Volume)
	}
	if _, err := a.guard.carryOut(ctx, d, f); err != nil {
		a.log.Info("tried again", "step", d.Message, "error", err.Error())
		a.ReportState(agentapi.StateWaiting, "", d.Message)
		return pauseAsking, nil
	}
	return 0, nil
}

// reportVolume reports what is known of the volume before etcd runs.
func (a *etcdAgent) reportVolume(d plan, f observation) {
	a.Store.Update(func(s *agentapi.Status) {
		s.SystemIdentifier, s.Position = f.Volume.RaftLog.Cluster, f.Volume.RaftLog.Commit
		s.DiskSpaceNeeded, s.Recovered = d.SpaceNeeded, f.Volume.Mark.Recovered
		changeGroup(s, func(g *etcdapi.GroupStatus) {
			g.DataVersion, g.LostMember = f.Volume.servedVersion(), d.Lost
			g.Group, g.Alarms = f.Volume.knownGroup(), nil
		})
		if d.Action == actHold || d.Action == actWait {
			s.ConfigHash, s.PendingRestart, s.TrustHash = f.ConfigHash, nil, ""
		}
	})
}
