// Package etcd runs etcd as a member of a cluster. When a member may start on
// its volume, and which settings it starts with, are pure functions; agent
// gathers what they need and does what they say.
package etcd

import (
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Ports that etcd listens on.
const (
	clientPort  = 2379
	peerPort    = 2380
	metricsPort = 2381 // on the loopback interface only
)

// Options of the agent. Each is set once, by optionsIn or by a test, and none belongs
// to another.
type Options struct {
	Identity identity.Identity
	Version  string // of the agent
	Client   kubernetes.Interface
	Log      *slog.Logger

	// Directories and files; see agentapi.
	DataDir, RunDir, TLSDir, ConfigFile string
	// BinDir holds etcd.
	BinDir string

	// StatusAddress and ProbeAddress to listen on.
	StatusAddress, ProbeAddress string
	// ListenHost is the address on which etcd serves clients and peers.
	ListenHost string
	// ClientPort, PeerPort and MetricsPort of this member.
	ClientPort, PeerPort, MetricsPort int
	// PeerURL and ClientURL of a member, as it advertises them.
	PeerURL, ClientURL func(pod string) string

	// AgentAddress of a member, as host:port.
	AgentAddress func(pod string) string

	// StopTimeout is how long a planned stop may take before it is forced.
	StopTimeout time.Duration
	// DrainTime is how long a member of several still serves in a planned stop, after it has
	// left the Services: nodes take a moment to route no new connection to it.
	DrainTime time.Duration
}

// optionsIn are the options of an agent in its pod.
func optionsIn(p agent.Pod) (Options, error) {
	bin, err := findPrograms()
	if err != nil {
		return Options{}, err
	}
	address := func(pod string, port int) string {
		return net.JoinHostPort(p.Identity.Host(pod), strconv.Itoa(port))
	}
	at := func(port int) string { return net.JoinHostPort("", strconv.Itoa(port)) }
	return Options{
		Identity: p.Identity, Version: p.Version, Client: p.Client, Log: p.Log, BinDir: bin,
		DataDir: agentapi.DataDir, RunDir: agentapi.RunDir, TLSDir: agentapi.TLSDir, ConfigFile: agentapi.ConfigFile,
		StatusAddress: at(agentapi.StatusPort), ProbeAddress: p.ProbeAddress,
		ListenHost: listenHost(p.Identity.Address),
		ClientPort: clientPort, PeerPort: peerPort, MetricsPort: metricsPort,
		PeerURL:      func(pod string) string { return "https://" + address(pod, peerPort) },
		ClientURL:    func(pod string) string { return "https://" + address(pod, clientPort) },
		AgentAddress: func(pod string) string { return address(pod, agentapi.StatusPort) },
		StopTimeout:  40 * time.Second,
		DrainTime:    2 * time.Second,
	}, nil
}

// listenHost is the address of every interface, in the family of the pod's own:
// etcd takes no name, and a node may have one family only.
func listenHost(pod string) string {
	if strings.Contains(pod, ":") {
		return "::"
	}
	return "0.0.0.0"
}

// etcdDir is the data directory.
func (o Options) etcdDir() string { return filepath.Join(o.DataDir, dataName) }

// etcdTLSDir is where etcd finds certificates. It reads them at every handshake, but
// the bundle of authorities only when it starts.
func (o Options) etcdTLSDir() string { return filepath.Join(o.RunDir, "tls") }

func (o Options) trustFile() string { return filepath.Join(o.etcdTLSDir(), "ca.crt") }
