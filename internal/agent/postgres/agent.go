package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// agent is the process beside PostgreSQL.
type postgresAgent struct {
	o       Options
	log     *slog.Logger
	ordinal int
	version string // of the programs
	major   int

	*agent.Host
	programs server.Programs
	lease    *leaseclient.Lease
	peers    *statusserver.Peers

	// control is the reserved connection, scrape that of the metrics,
	// positions that of answers to other members.
	control, scrape, positions *server.Session
	position                   positionCache
	follower                   follower
	archive                    *archive.Archiver
	// checkpointDue holds one when a checkpoint would free disk space.
	checkpointDue chan struct{}

	// cluster is the UID in the first configuration: a pod of an earlier
	// cluster of the name that is about to go reads the next one's, too.
	cluster string

	// taken is the Lease as it was before this process claimed it, led says that
	// this process has led since, and askedSince when it began to ask the other
	// members; all are the loop's.
	taken      leaseclient.Record
	led        bool
	askedSince time.Duration
	boot       string
	// measured is of the data while it does not run, and flushed of a primary.
	measured measuredWAL
	flushed  flushedWAL

	// evidence is the end of a replica's WAL that is not compared with the
	// primary's yet, compared the last that was, and comparedAt when.
	evidence   walEvidence
	compared   comparedWAL
	comparedAt time.Duration
	last       lastRecord

	// proof is of a replica that seems to be ahead of its primary.
	proof divergedProof

	// copyAgain says that the data can no longer follow, and filled what
	// became of the last copy; both are the loop's.
	copyAgain bool
	filled    dataspace.FilledCopy

	// primary is the member that last said that it is the primary.
	mu       sync.Mutex
	primary  agentapi.Status
	location primaryLocation
	// moved holds one when the primary is to be looked for elsewhere.
	moved chan struct{}
}

// Run looks after PostgreSQL until ctx ends, and then until it has stopped in
// order.
func Run(ctx context.Context, o Options) error {
	a, err := newAgent(ctx, o)
	if err != nil {
		return err
	}
	return a.runAgent(ctx)
}

func (a *postgresAgent) runAgent(ctx context.Context) error {
	// A database that stops archives once more.
	outer, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := a.archive.ServeSocket(outer, a.o.RunDir); err != nil {
		return err
	}
	err := a.Run(ctx, a.refreshPosition, a.metricsHandler(), a.runLoop, a.lease.RenewWhileHeld)
	for _, s := range []*server.Session{a.control, a.scrape, a.positions} {
		s.Close()
	}
	return err
}

func newAgent(ctx context.Context, o Options) (*postgresAgent, error) {
	ordinal, err := identity.Ordinal(o.Identity.Pod)
	if err != nil {
		return nil, err
	}
	a := &postgresAgent{
		o: o, log: o.Log, ordinal: ordinal,
		programs:  server.Programs{Programs: process.Programs{Dir: o.BinDir, Processes: process.NewProcesses()}},
		control:   server.NewSession(o.RunDir, o.Port, "holdfast"),
		scrape:    server.NewSession(o.RunDir, o.Port, "holdfast-metrics"),
		positions: server.NewSession(o.RunDir, o.Port, "holdfast-position"),
		moved:     make(chan struct{}, 1), checkpointDue: make(chan struct{}, 1),
		boot: bootID(),
	}
	if a.version, a.major, err = a.programs.ReadVersion(ctx); err != nil {
		return nil, err
	}
	a.Host = agent.NewHost(agent.HostOptions{
		Identity: o.Identity, Version: o.Version, Client: o.Client, Log: o.Log, DatabaseVersion: a.version,
		TLSDir: o.TLSDir, ConfigFile: o.ConfigFile, StatusAddress: o.StatusAddress, ProbeAddress: o.ProbeAddress,
		Space: a.measureSpace, Allocate: a.allocateFile, Flush: a.flushRecord,
		OmitMoving: omitMoving, MarkDown: markDown,
		Handlers: map[string]http.Handler{postgresapi.ComparisonPath: http.HandlerFunc(a.serveComparison)},
	})
	a.lease = leaseclient.NewLease(o.Identity, leaseLabels(o.Identity.Cluster), a.ListOwners, o.Client, o.Log)
	a.lease.RecordAtRenewal(a.flushed.annotateRenewal(a.boot))
	a.archive = archive.New(archive.Options{
		Log: a.log, DataDirectory: o.pgdataPath(), CredentialsDir: o.StoreDir, MemoryLimit: o.Resources.MemoryLimit,
		Place: a.archivePlace, Space: a.measureSpace, Checkpoint: a.requestCheckpoint,
		Report: func(status *agentapi.ArchiveStatus) {
			a.Store.Update(func(to *agentapi.Status) { to.Archive = status })
		},
	})
	a.peers = statusserver.NewPeers(a.Certificates, o.AgentAddress, agentapi.DecodeStatus[postgresapi.ReplicationStatus])
	for _, dir := range []string{o.RunDir, filepath.Join(o.RunDir, "tls")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the run directory: %w", err)
		}
	}
	return a, nil
}

// archivePlace is where this member's WAL is archived now.
func (a *postgresAgent) archivePlace() (*archive.Place, error) {
	config, _ := a.Config.Current()
	return archive.FindPlace(config, a.Store.Get().SystemIdentifier)
}

func leaseLabels(cluster string) map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster:        cluster,
		v1alpha1.LabelKind:           "postgrescluster",
		v1alpha1.LabelManagedBy:      v1alpha1.ManagedBy,
		"app.kubernetes.io/name":     "postgresql",
		"app.kubernetes.io/instance": cluster,
	}
}

// findPrimary asks all other members at once which of them is the primary.
func (a *postgresAgent) findPrimary(ctx context.Context) (agentapi.Status, bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var asked sync.WaitGroup
	found := make(chan agentapi.Status, len(a.ListMembers()))
	for _, pod := range a.ListMembers() {
		if pod == a.o.Identity.Pod {
			continue
		}
		asked.Go(func() {
			status, err := a.peers.Status(ctx, pod)
			if err == nil && status.Role == v1alpha1.RolePrimary && status.Serving {
				found <- status
				cancel()
			}
		})
	}
	asked.Wait()
	select {
	case status := <-found:
		a.mu.Lock()
		a.primary = status
		a.mu.Unlock()
		return status, true
	default:
		return agentapi.Status{}, false
	}
}

// knownPrimary is the pod that this replica follows: the one that said so
// last, or the first member.
func (a *postgresAgent) knownPrimary() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.primary.Pod != "" {
		return a.primary.Pod
	}
	name, _, _ := strings.Cut(a.o.Identity.Pod, a.o.Identity.Cluster)
	return name + a.o.Identity.Cluster + "-0"
}
