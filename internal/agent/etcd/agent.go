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
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// agent is the process beside etcd.
type etcdAgent struct {
	*agent.Host
	o       Options
	log     *slog.Logger
	version string // of etcd in the image
	release release

	programs programs
	gate     *gate
	local    *local

	// crashes counts starts in a row that came to nothing, and refused is why
	// the declared parameters were last given up for that.
	crashes int
	refused string
	// notRenewed says that a snapshot for the next version could not be had.
	notRenewed bool
	// older is what etcd says of data that is newer than itself.
	older string
}

// Run looks after etcd until ctx ends, and then until it has stopped in order.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(ctx, o)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

func (a *etcdAgent) run(ctx context.Context) error {
	err := a.Run(ctx, func(context.Context) {}, a.metricsHandler(), a.loop)
	a.local.close()
	return err
}

func newAgent(ctx context.Context, o Options) (*etcdAgent, error) {
	a := &etcdAgent{o: o, log: o.Log, programs: programs{process.Programs{Dir: o.BinDir, Processes: process.NewProcesses()}}}
	version, release, err := a.programs.version(ctx)
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
	})
	a.local = newLocal(a.Certificates, o)
	pod, peers := o.Identity.Pod, statusserver.NewPeers(a.Certificates, o.AgentAddress, agentapi.DecodeStatus[etcdapi.GroupStatus])
	a.gate = &gate{
		pod: pod, dir: o.DataDir, version: version, log: o.Log, space: space,
		config:   func() *agent.Config { config, _ := a.Config.Current(); return config },
		register: leaseclient.NewRegistry(o.Identity, leaseLabels(o.Identity.Cluster), a.Owners, o.Client),
		confirm: func(ctx context.Context, t etcdapi.JoinGrant, data logState) confirmation {
			return a.local.confirm(ctx, t, data, pod)
		},
		object: func(ctx context.Context, data logState) string {
			others := slices.DeleteFunc(slices.Clone(a.Members()), func(other string) bool { return other == pod })
			return othersObject(ctx, others, data, peers.Status)
		},
	}
	if err := os.MkdirAll(o.tls(), 0o700); err != nil {
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

// Pauses between two looks while etcd does not run.
const (
	pauseWaiting = 500 * time.Millisecond
	pauseAsking  = time.Second // each look asks the API server
	pauseHeld    = time.Second
	pauseOlder   = 15 * time.Second // only another image helps
)

// loop gathers, decides and does one thing, again and again, until ctx ends.
func (a *etcdAgent) loop(ctx context.Context) { a.Loop(ctx, a.o.DataDir, a.step) }

// step does the next thing, and says how long to wait before the one after.
func (a *etcdAgent) step(ctx context.Context) (time.Duration, error) {
	if a.older != "" {
		a.Report(agentapi.StateHeld, agentapi.HoldDataVersion, a.older)
		return pauseOlder, nil
	}
	d, f, err := a.gate.next(ctx)
	if err != nil {
		return 0, err
	}
	// What etcd heard counts for one step: after another, a quorum may be back.
	a.gate.leaderless = ""
	a.describe(d, f)
	switch d.Action {
	case actHold:
		a.Report(agentapi.StateHeld, d.Hold, d.Message)
		return pauseHeld, nil
	case actWait:
		a.Report(agentapi.StateWaiting, "", d.Message)
		if f.wantsRegister() {
			return pauseAsking, nil
		}
		return pauseWaiting, nil
	case actBirth:
		a.Report(agentapi.StateInitializing, "", d.Message)
		return 0, a.birth(ctx, f)
	case actRecover:
		if objection := a.gate.object(ctx, f.Volume.Log); objection != "" {
			a.log.Warn("does not go on alone", "because", objection)
			return 0, nil
		}
		a.Report(agentapi.StateInitializing, "", d.Message)
		return 0, a.recover(ctx, f)
	case actJoin:
		return 0, a.join(ctx, f)
	case actStart:
		if err := a.renew(ctx, f.Volume); err != nil {
			return 0, err
		}
		return 0, a.serve(ctx, start{Data: a.o.data()}, f.Volume)
	}
	if _, err := a.gate.do(ctx, d, f); err != nil {
		a.log.Info("tried again", "step", d.Message, "error", err.Error())
		a.Report(agentapi.StateWaiting, "", d.Message)
		return pauseAsking, nil
	}
	return 0, nil
}

// describe reports what is known of the volume before etcd runs.
func (a *etcdAgent) describe(d decision, f facts) {
	a.Store.Update(func(s *agentapi.Status) {
		s.SystemIdentifier, s.Position = f.Volume.Log.Cluster, f.Volume.Log.Commit
		s.RoomNeeded, s.Recovered = d.Room, f.Volume.Mark.Recovered
		changeGroup(s, func(g *etcdapi.GroupStatus) {
			g.DataVersion, g.LostMember = f.Volume.version(), d.Lost
			g.Group, g.Alarms = f.Volume.group(), nil
		})
		if d.Action == actHold || d.Action == actWait {
			s.ConfigHash, s.PendingRestart, s.TrustHash = f.ConfigHash, nil, ""
		}
	})
}
