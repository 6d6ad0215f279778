// Package postgres is the process beside PostgreSQL. It decides from what is
// on the volume, in the Lease and in the cluster's configuration whether to
// initialize, copy, start or hold the database, looks after it while it runs,
// and reports what it observes.
//
// What a start is decided from and to is in startplan. The parts of the agent are
// packages below this one: datavolume, datacopy, leadership, leaderview, divergence,
// serverfiles, archive. This package observes what they need, does what is planned,
// and holds one run of the server, a serverLife, with what it does as a primary and
// as a replica.
package postgres

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leadership"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/primarylease"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// port that PostgreSQL listens on.
const port = 5432

// Options of the agent.
type Options struct {
	Identity identity.Identity
	Version  string // of the agent
	Client   kubernetes.Interface
	Log      *slog.Logger

	Paths

	// StatusAddress, ProbeAddress and Port to listen on.
	StatusAddress, ProbeAddress string
	Port                        int
	// AgentAddress and DatabaseAddress of a member, as host:port.
	AgentAddress, DatabaseAddress func(pod string) string
	// NewLease is the Lease of the primary for a member, with the UID of its cluster and
	// the owners whose deletion takes the Lease along.
	NewLease func(cluster func() string, owners func() []metav1.OwnerReference) (leadership.LeaseStore, error)
	// Guard ends every process at a deadline.
	Guard elector.Guard
	// Fences counts the fences by the guard before this process.
	Fences int64

	Resources settings.Resources
	// StopTimeout is how long a planned stop may take before it is forced.
	StopTimeout time.Duration

	testHooks
}

// testHooks replace what a test cannot wait for, or fill; the zero value replaces
// nothing.
type testHooks struct {
	// copySilence is how long a copy may receive nothing; see datacopy.Options.
	copySilence time.Duration
	// space measures a volume; diskspace.SpaceOf where it is nil.
	space func(dir string) diskspace.Space
	// allocate says whether a file can grow; diskspace.AllocateIn where it is nil.
	allocate func(dir string) error
}

// Paths are directories and files of the container; see agentapi.
type Paths struct {
	DataDir, RunDir, TLSDir, CredentialsDir, ConfigFile string
	// StoreDir holds the credentials of the store that WAL is archived in.
	StoreDir string
	// BinDir holds PostgreSQL's programs.
	BinDir string
	// Program is this one, which the database calls.
	Program string
}

// optionsIn are the options of an agent in its pod.
func optionsIn(p agent.Pod) (Options, error) {
	bin, err := server.FindPrograms()
	if err != nil {
		return Options{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return Options{}, fmt.Errorf("find the agent's own program: %w", err)
	}
	at := func(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
	return Options{
		Identity: p.Identity, Version: p.Version, Client: p.Client, Log: p.Log,
		Paths: Paths{
			BinDir: bin, Program: program, DataDir: agentapi.DataDir, RunDir: agentapi.RunDir, TLSDir: agentapi.TLSDir,
			CredentialsDir: agentapi.CredentialsDir, ConfigFile: agentapi.ConfigFile, StoreDir: agentapi.StoreDir,
		},
		StatusAddress:   at("", agentapi.StatusPort),
		ProbeAddress:    p.ProbeAddress,
		Port:            port,
		AgentAddress:    func(pod string) string { return at(p.Identity.Host(pod), agentapi.StatusPort) },
		DatabaseAddress: func(pod string) string { return at(p.Identity.Host(pod), port) },
		Resources: settings.Resources{
			MemoryLimit:   envInt(agentapi.EnvMemoryLimit),
			MemoryRequest: envInt(agentapi.EnvMemoryRequest),
			CPU:           envInt(agentapi.EnvCPULimit),
		},
		StopTimeout: 90 * time.Second,
		NewLease: func(cluster func() string, owners func() []metav1.OwnerReference) (leadership.LeaseStore, error) {
			return primarylease.New(primarylease.Options{
				Config: p.Config, Identity: p.Identity, Timing: defaultTiming, Labels: leaseLabels(p.Identity.Cluster), Cluster: cluster, Owners: owners,
			})
		},
		Guard: guardOf(p), Fences: countFences(p),
	}, nil
}

// noGuard is the guard of an agent that has none: only the agent itself fences.
type noGuard struct{}

func (noGuard) Extend(time.Duration) bool { return true }

func (noGuard) Clear() bool { return true }

func guardOf(p agent.Pod) elector.Guard {
	if p.Deadline == nil {
		return noGuard{}
	}
	return p.Deadline
}

func countFences(p agent.Pod) int64 {
	if p.Deadline == nil {
		return 0
	}
	return p.Deadline.Fences()
}

// defaultTiming is that of the Lease.
var defaultTiming, _ = lease.NewTiming(lease.DefaultDuration)

func envInt(name string) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// pgdataPath is the data directory.
func (o Options) pgdataPath() string { return filepath.Join(o.DataDir, datavolume.DataName) }

// leaderConnection is how this member streams from a leader, at an address if that is
// not empty. It never connects to the read-write Service: that may be another member.
func (o Options) leaderConnection(pod, address string) settings.PrimaryConnection {
	return settings.PrimaryConnection{Pod: o.DatabaseAddress(pod), IP: address, Member: o.Identity.Pod, RunDir: o.RunDir}
}

// copyConnection is how this member copies the data of the primary.
func (o Options) copyConnection(pod, address string) string {
	c := o.leaderConnection(pod, address)
	c.Application = settings.CopyApplication
	return c.String()
}

// measureSpace measures the volume.
func (o Options) measureSpace() diskspace.Space {
	if o.space != nil {
		return o.space(o.DataDir)
	}
	return diskspace.SpaceOf(o.DataDir)
}

// allocateFile says whether a file on the volume can grow.
func (o Options) allocateFile() error {
	if o.allocate != nil {
		return o.allocate(o.DataDir)
	}
	return diskspace.AllocateIn(o.DataDir)
}
