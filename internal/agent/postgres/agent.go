package postgres

import (
	"context"
	"net/http"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/insights"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datacopy"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/divergence"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leadership"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/replica"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/servercontrol"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/serverfiles"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/anomaly"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// textLog is how the server's text log is read.
var textLog = insights.TextLog{Parse: loginsight.ParsePostgres, IsContinued: loginsight.IsPostgresContinuation}

// postgresAgent is the process beside PostgreSQL: its parts, which outlive the runs of
// the server, and the loop that uses them. A part keeps its own state and lock.
type postgresAgent struct {
	o       Options
	ordinal int
	*agent.Host
	programs server.Programs

	lease     leadership.LeaseStore
	first     *leadership.FirstRecord
	directory *leadership.Directory
	peers     *statusserver.Peers
	servers   *servercontrol.Control
	view      *leaderview.View
	comparer  *divergence.Comparer
	copies    *datacopy.Copies
	follower  *replica.Follower
	files     *serverfiles.Files
	archive   *archive.Archiver

	electionParts
	rejoin rejoin
	logins metrics.LoginFailures
	// statements are counted since the agent's first scrape.
	statements metrics.Statements
	asked      metrics.AskedCheckpoints

	// control is the reserved connection, and scrape that for metrics and for tuning.
	control     *server.Session
	scrape      *server.Session
	position    *positionReader
	checkpoints checkpointRequests
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
	a.outer = outer
	if err := a.archive.ServeSocket(outer, a.o.RunDir); err != nil {
		return err
	}
	err := a.Run(ctx, a.position.refreshPosition, a.newCollector(a.scrape).newHandler(), a.runLoop, a.directory.Follow)
	stop()
	a.parts.Wait()
	for _, s := range []*server.Session{a.control, a.scrape, a.position.session} {
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
		o: o, ordinal: ordinal,
		programs:    server.Programs{Programs: process.Programs{Dir: o.BinDir, Processes: process.NewProcesses()}},
		control:     server.NewSession(o.RunDir, o.Port, "holdfast"),
		scrape:      server.NewSession(o.RunDir, o.Port, "holdfast-metrics"),
		follower:    &replica.Follower{},
		checkpoints: newCheckpointRequests(),
	}
	a.rejoin.a = a
	version, major, err := a.programs.ReadVersion(ctx)
	if err != nil {
		return nil, err
	}
	a.programs.Major = major
	a.position = &positionReader{log: o.Log, runDir: o.RunDir, port: o.Port, session: server.NewSession(o.RunDir, o.Port, "holdfast-position")}
	a.Host = a.newHost(version)
	a.position.store = a.Store
	if a.lease, err = o.NewLease(a.clusterUID, a.ListOwners); err != nil {
		return nil, err
	}
	a.first = leadership.NewFirstRecord(o.Identity, a.lease, o.Log)
	a.Labeller.LimitPrimary(a.isLeading)
	a.archive = archive.New(archive.Options{
		Log: o.Log, DataDirectory: o.pgdataPath(), CredentialsDir: o.StoreDir, MemoryLimit: o.Resources.MemoryLimit,
		Place: a.archivePlace, Space: o.measureSpace, Checkpoint: a.checkpoints.requestCheckpoint,
		Report: func(status *agentapi.ArchiveStatus) {
			a.Store.Update(func(to *agentapi.Status) { to.Archive = status })
		},
	})
	a.addParts(statusserver.NewPeers(a.Certificates, o.AgentAddress, agentapi.DecodeStatus[postgresapi.ReplicationStatus]))
	return a, a.files.MakeDirectories()
}

// newCollector returns what answers scrapes, and asks the database over a session.
func (a *postgresAgent) newCollector(scrape *server.Session) collector {
	return collector{
		log: a.o.Log, store: a.Store, leads: a.isLeading, election: a.readElection, space: a.o.measureSpace,
		archive: a.archive, scrape: scrape, rejoin: &a.rejoin, logins: &a.logins, statements: &a.statements, major: a.programs.Major,
	}
}

// readElection is this member's part in the election, as its metrics have it.
func (a *postgresAgent) readElection() metrics.Election {
	e := metrics.Election{View: a.readView(), Now: clock.Boottime(), FencesBefore: a.o.Fences, Copies: a.copies.CountAdopted()}
	if config := a.currentConfig(); config != nil && config.Synchronous != nil {
		e.SynchronousWanted = config.Synchronous.Number
	}
	return e
}

func (a *postgresAgent) newHost(version string) *agent.Host {
	o := a.o
	return agent.NewHost(agent.HostOptions{
		Identity: o.Identity, Version: o.Version, Client: o.Client, Log: o.Log, DatabaseVersion: version,
		TLSDir: o.TLSDir, ConfigFile: o.ConfigFile, StatusAddress: o.StatusAddress, ProbeAddress: o.ProbeAddress,
		Space: o.measureSpace, Allocate: o.allocateFile, Flush: a.position.flushRecord,
		OmitMoving: omitMoving, MarkDown: markDown,
		TextLog:  &textLog,
		Measure:  a.measureTuning,
		Signals:  &anomalies.Signals{List: anomaly.PostgresSignals, Measure: a.measureSignals},
		DataDir:  o.DataDir,
		RunDir:   o.RunDir,
		Messages: a.electionHandlers(),
		Handlers: map[string]http.Handler{postgresapi.ComparisonPath: divergence.AnswerComparisons(o.pgdataPath(), a.position.refreshPosition, a.position.readStatus)},
	})
}

// addParts makes the parts that ask the other members.
func (a *postgresAgent) addParts(peers *statusserver.Peers) {
	o := a.o
	a.peers = peers
	a.directory = leadership.NewDirectory(o.Identity.Pod, a.ListMembers, peers)
	a.servers = servercontrol.New(servercontrol.Options{
		Log: o.Log, Volume: o.DataDir, PGData: o.pgdataPath(), Programs: a.programs, Connection: a.connectLeader, Directory: a.directory,
	})
	a.view = leaderview.NewView(leaderview.Options{Pod: o.Identity.Pod, Peers: peers, Leader: a.readLeader, Address: a.leaderAddress})
	a.comparer = divergence.NewComparer(divergence.Options{
		Log: o.Log, Volume: o.DataDir, PGData: o.pgdataPath(), Programs: a.programs, Ask: peers.AskPeer,
		IsSuperseded: a.isSuperseded,
	})
	a.copies = datacopy.NewCopies(datacopy.Options{
		Log: o.Log, Volume: o.DataDir, PGData: o.pgdataPath(), Pod: o.Identity.Pod, Programs: a.programs,
		Connection: func(pod string) string { return o.copyConnection(pod, a.leaderAddress(a.readLeader())) },
		Space:      o.measureSpace, Silence: o.copySilence,
	})
	a.files = serverfiles.NewFiles(serverfiles.Options{
		Log: o.Log, Identity: o.Identity, Volume: o.DataDir, PGData: o.pgdataPath(), RunDir: o.RunDir,
		Program: o.Program, Port: o.Port, Programs: a.programs, Resources: o.Resources,
	})
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
