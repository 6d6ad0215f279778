// Package mysql runs MySQL as a member of a group. It observes the volume, the record of
// the members, the other members and the server, does what the pure packages below decide
// (startplan, group, serving), and reports what it observes.
//
// One run of the server is a serverRun. Its goroutines observe and change the server's part
// in the group (groupLoop), keep the record while the server leads (recordWriter), carry
// out requests, and keep settings, certificates and accounts.
package mysql

import (
	"context"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Options of the agent.
type Options struct {
	Identity identity.Identity
	Version  string // of the agent
	Client   kubernetes.Interface
	Log      *slog.Logger

	Paths

	// StatusAddress and ProbeAddress to listen on.
	StatusAddress, ProbeAddress string
	// AgentAddress of a member, as host:port.
	AgentAddress func(pod string) string
	// Database is where a member's server is reached.
	Database func(pod string) (host string, port int)
	// Resolve looks up the addresses of a host.
	Resolve func(ctx context.Context, host string) ([]string, error)
	Memory  settings.Memory
	// SystemUser is the name of the operating system's user that the agent runs as.
	SystemUser string
	// StopTimeout is how long the server may take to shut down.
	StopTimeout time.Duration
}

// Paths are directories and files of the container; see agentapi.
type Paths struct {
	DataDir, RunDir, TLSDir, CredentialsDir, ConfigFile string
	// StoreDir holds the credentials of the store that binlogs are archived in.
	StoreDir string
	// BinDir holds MySQL's programs.
	BinDir string
}

// optionsIn are the options of an agent in its pod.
func optionsIn(p agent.Pod) (Options, error) {
	bin, err := server.FindPrograms()
	if err != nil {
		return Options{}, err
	}
	self, err := user.Current()
	if err != nil {
		return Options{}, err
	}
	return Options{
		Identity: p.Identity, Version: p.Version, Client: p.Client, Log: p.Log,
		Paths: Paths{
			BinDir: bin, DataDir: agentapi.DataDir, RunDir: agentapi.RunDir, TLSDir: agentapi.TLSDir,
			CredentialsDir: agentapi.CredentialsDir, ConfigFile: agentapi.ConfigFile, StoreDir: agentapi.StoreDir,
		},
		StatusAddress: net.JoinHostPort("", strconv.Itoa(agentapi.StatusPort)),
		ProbeAddress:  p.ProbeAddress,
		AgentAddress: func(pod string) string {
			return net.JoinHostPort(p.Identity.Host(pod), strconv.Itoa(agentapi.StatusPort))
		},
		Database:    func(pod string) (string, int) { return p.Identity.Host(pod), settings.Port },
		Resolve:     net.DefaultResolver.LookupHost,
		Memory:      settings.Memory{Limit: readNumber(agentapi.EnvMemoryLimit), Request: readNumber(agentapi.EnvMemoryRequest)},
		SystemUser:  self.Username,
		StopTimeout: time.Minute,
	}, nil
}

// readNumber reads a number from the environment; 0 for none.
func readNumber(name string) int64 {
	n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

func (p Paths) certificateDir() string { return filepath.Join(p.RunDir, "tls") }

func (p Paths) settingsFile() string { return filepath.Join(p.RunDir, "my.cnf") }

func (p Paths) socket() string { return settings.SocketPath(p.RunDir) }

func (p Paths) mysqlDir() string { return filepath.Join(p.DataDir, datavolume.DataName) }
