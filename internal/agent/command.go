package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-db/holdfast/internal/agent/guard"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Pod is what an agent has in its pod, whichever the database.
type Pod struct {
	Identity identity.Identity
	Version  string // of the agent
	Client   kubernetes.Interface
	// Config is how the API server is reached.
	Config *rest.Config
	Log    *slog.Logger
	// ProbeAddress to answer probes at: the guard's socket, where there is one.
	ProbeAddress string
	// Deadline at which the guard ends every process; nil where no guard can do so.
	Deadline *guard.Deadline
}

// NewCommand runs an agent in its pod, with the environment that the operator
// gives it, until it is asked to stop. It stands under "agent". As the first
// process of a container it is the guard of that agent.
func NewCommand(use, short, version string, run func(context.Context, Pod) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getpid() == 1 {
				return guard.RunGuarded(filepath.Join(agentapi.RunDir, "probe.sock"), net.JoinHostPort("", strconv.Itoa(agentapi.ProbePort)))
			}
			pod, err := podFromEnv(version)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return run(ctx, pod)
		},
	}
}

func podFromEnv(version string) (Pod, error) {
	// First of all: what is started before would inherit it.
	deadline, unguarded := guard.OpenDeadline()
	id, err := identity.FromEnv()
	if err != nil {
		return Pod{}, err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return Pod{}, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "holdfast-agent/" + version
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Pod{}, fmt.Errorf("set up the API client: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("pod", id.Pod)
	if unguarded != nil {
		log.Warn("no guard ends this agent at a deadline", "error", unguarded.Error())
	}
	probe := os.Getenv(guard.EnvGuard)
	if probe == "" {
		probe = net.JoinHostPort("", strconv.Itoa(agentapi.ProbePort))
	}
	return Pod{Identity: id, Version: version, Client: client, Config: config, Log: log, ProbeAddress: probe, Deadline: deadline}, nil
}
