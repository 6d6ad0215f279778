// Package postgres is the process beside PostgreSQL. It decides from what is
// on the volume, in the Lease and in the cluster's configuration whether to
// initialise, copy, start or hold the database, looks after it while it runs,
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

	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
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
	// ReadWriteAddress is where the primary is reached when its pod's own
	// name is not known yet; may be empty.
	ReadWriteAddress string

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
		StatusAddress:    at("", agentapi.StatusPort),
		ProbeAddress:     p.ProbeAddress,
		Port:             port,
		AgentAddress:     func(pod string) string { return at(p.Identity.Host(pod), agentapi.StatusPort) },
		DatabaseAddress:  func(pod string) string { return at(p.Identity.Host(pod), port) },
		ReadWriteAddress: at(fmt.Sprintf("%s-rw.%s.svc", p.Identity.Cluster, p.Identity.Namespace), port),
		Resources: settings.Resources{
			MemoryLimit:   envInt(agentapi.EnvMemoryLimit),
			MemoryRequest: envInt(agentapi.EnvMemoryRequest),
			CPU:           envInt(agentapi.EnvCPULimit),
		},
		StopTimeout: 90 * time.Second,
	}, nil
}

func envInt(name string) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// pgdataPath is the data directory.
func (o Options) pgdataPath() string { return filepath.Join(o.DataDir, datavolume.DataName) }

// primaryConnection is how this member connects to the primary, at the address that
// the Lease gave, if it did.
func (o Options) primaryConnection(primary, address string) string {
	return settings.PrimaryConnection{Pod: o.DatabaseAddress(primary), ReadWrite: o.ReadWriteAddress, IP: address, Member: o.Identity.Pod, RunDir: o.RunDir}.String()
}

// copyConnection is how this member copies the data of the primary.
func (o Options) copyConnection(primary string) string {
	return settings.PrimaryConnection{
		Pod: o.DatabaseAddress(primary), ReadWrite: o.ReadWriteAddress, Member: o.Identity.Pod, RunDir: o.RunDir, Application: settings.CopyApplication,
	}.String()
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
