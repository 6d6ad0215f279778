package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/insights"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/archiver"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/membership"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/anomaly"
	"github.com/holdfast-db/holdfast/internal/loginsight"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
)

// mysqlAgent is the process beside MySQL: what outlives the runs of the server.
type mysqlAgent struct {
	*agent.Host
	o        Options
	ordinal  int
	version  mysqlversion.Version // of the programs
	programs server.Programs
	peers    *peers
	archiver *archiver.Archiver

	// store is used by the steps before a run, and by the groupLoop of a run.
	store *membership.Store
	// leads says whether the member may label itself as the primary.
	leads atomic.Bool
	// switchover is what the primary announces.
	switchover expectation
	// crashes counts starts in a row that came to nothing, and refused is why the declared
	// parameters were last set aside for that.
	crashes int
	refused string
	// replace is the copy that the last run ended for; nil for none. donorBusy says that the
	// last attempt at a copy met another one for too long.
	replace   *replacement
	donorBusy bool
	// prepared says that a clone was prepared, or that this was tried.
	prepared bool
	// copies counts those that were put in place.
	copies atomic.Int64
}

// Run supervises MySQL until ctx ends, and then until it has stopped in order.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(ctx, o)
	if err != nil {
		return err
	}
	return a.runAgent(ctx)
}

func (a *mysqlAgent) runAgent(ctx context.Context) error {
	scrapes := newCollector(a)
	defer scrapes.close()
	return a.Run(ctx, func(context.Context) {}, scrapes.handler(), func(ctx context.Context) {
		a.RunLoop(ctx, a.o.DataDir, a.doStep)
	})
}

func newAgent(ctx context.Context, o Options) (*mysqlAgent, error) {
	a := &mysqlAgent{o: o, programs: server.Programs{Programs: process.Programs{Dir: o.BinDir, Processes: process.NewProcesses()}}}
	text, version, err := a.programs.ReadVersion(ctx)
	if err != nil {
		return nil, err
	}
	if !version.IsSupported() {
		return nil, fmt.Errorf("the image holds MySQL %s: set spec.version to one of %v", text, mysqlversion.ListSupported())
	}
	a.version = version
	if a.ordinal, err = identity.Ordinal(o.Identity.Pod); err != nil {
		return nil, err
	}
	a.Host = agent.NewHost(agent.HostOptions{
		Identity: o.Identity, Version: o.Version, Client: o.Client, Log: o.Log, DatabaseVersion: version.String(),
		TLSDir: o.TLSDir, ConfigFile: o.ConfigFile, StatusAddress: o.StatusAddress, ProbeAddress: o.ProbeAddress,
		Space:      a.measureSpace,
		Allocate:   func() error { return diskspace.AllocateIn(o.DataDir) },
		OmitMoving: omitMoving, MarkDown: markDown,
		TextLog:  &insights.TextLog{Parse: loginsight.ParseMySQL},
		Measure:  a.measureTuning,
		Signals:  &anomalies.Signals{List: anomaly.MySQLSignals, Measure: a.measureSignals},
		DataDir:  o.DataDir,
		RunDir:   o.RunDir,
		Messages: a.messageHandlers(),
	})
	a.Labeller.LimitPrimary(a.leads.Load)
	others := statusserver.NewPeers(a.Certificates, o.AgentAddress, agentapi.DecodeStatus[mysqlapi.GroupStatus])
	a.peers = &peers{self: o.Identity.Pod, list: a.ListMembers, status: others.Status, post: others.PostPeer}
	a.store = a.newStore()
	a.archiver = a.newArchiver()
	if err := os.MkdirAll(o.certificateDir(), 0o700); err != nil {
		return nil, fmt.Errorf("make the run directory: %w", err)
	}
	return a, nil
}

// newStore is a store of the membership record for one goroutine.
func (a *mysqlAgent) newStore() *membership.Store {
	lease := leaseclient.NewMembershipLease(a.o.Identity, leaseLabels(a.o.Identity.Cluster), a.ListOwners, a.o.Client)
	return membership.NewStore(lease, func() string {
		if config, _ := a.Config.Current(); config != nil {
			return config.UID
		}
		return ""
	})
}

func leaseLabels(cluster string) map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster:        cluster,
		v1alpha1.LabelKind:           "mysqlcluster",
		v1alpha1.LabelManagedBy:      v1alpha1.ManagedBy,
		"app.kubernetes.io/name":     "mysql",
		"app.kubernetes.io/instance": cluster,
	}
}

func (a *mysqlAgent) measureSpace() diskspace.Space { return diskspace.SpaceOf(a.o.DataDir) }

// currentConfig is the newest configuration; nil before the first.
func (a *mysqlAgent) currentConfig() *agent.Config {
	config, _ := a.Config.Current()
	return config
}

// newSettingsInput is what the member's settings are computed from.
func (a *mysqlAgent) newSettingsInput(config *agent.Config, group string, parameters map[string]string) settings.Input {
	host, port := a.o.Database(a.o.Identity.Pod)
	in := settings.Input{
		Host: host, Port: port, ServerID: settings.ServerID(config.UID, a.ordinal), GroupName: group,
		RunDir: a.o.RunDir, DataDir: a.o.mysqlDir(), CertificateDir: a.o.certificateDir(),
		VolumeSize: config.VolumeSize, Memory: a.o.Memory, Parameters: parameters, Archives: config.Archive != nil,
	}
	for _, pod := range config.Members {
		in.Seeds = append(in.Seeds, joinAddress(a.o.Database(pod)))
	}
	return in
}

// writeCertificates gives the server its certificate, which clients and members see, and
// the authorities of members. It says whether anything changed.
func (a *mysqlAgent) writeCertificates() (changed bool, err error) {
	bundle, _ := a.Certificates.Current()
	if bundle == nil {
		return false, errors.New("the member has no certificate yet")
	}
	for name, data := range map[string][]byte{"ca.crt": bundle.CAPEM, "server.crt": bundle.CertPEM, "server.key": bundle.KeyPEM} {
		path := filepath.Join(a.o.certificateDir(), name)
		before, _ := os.ReadFile(path)
		if string(before) == string(data) {
			continue
		}
		changed = true
		if err := atomicfile.WriteFile(path, data); err != nil {
			return changed, err
		}
	}
	return changed, nil
}
