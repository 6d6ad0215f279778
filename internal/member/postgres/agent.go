package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// agent is the process beside PostgreSQL.
type agent struct {
	o       Options
	log     *slog.Logger
	ordinal int
	version string // of the programs
	major   int

	programs     programs
	store        *member.Store
	certificates *member.Certificates
	config       *member.ConfigSource
	lease        *member.Lease
	labeller     *member.Labeller
	peers        *member.Peers
	lock         *member.VolumeLock

	// control is the reserved connection, scrape that of the metrics,
	// positions that of answers to other members.
	control, scrape, positions *session
	position                   positionCache
	follower                   follower

	// cluster is the UID in the first configuration: a pod of an earlier
	// cluster of the name that is about to go reads the next one's, too.
	cluster string

	// proof is of a replica that seems to be ahead of its primary.
	proof aheadProof

	// copyAgain says that the data can no longer follow, and filled what
	// became of the last copy; both are the loop's.
	copyAgain bool
	filled    filledCopy

	// primary is the member that last said that it is the primary.
	mu          sync.Mutex
	primary     memberapi.Status
	whereabouts whereabouts
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
	return a.run(ctx)
}

func (a *agent) run(ctx context.Context) error {
	// The helpers outlive ctx: the stop in order still renews the Lease,
	// labels the pod and answers the operator.
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	failed, err := a.startHelpers(helpers)
	if err != nil {
		stop()
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-failed:
			cancel(err)
		case <-work.Done():
		}
	}()
	a.loop(work)
	cancel(nil)
	stop()
	for _, s := range []*session{a.control, a.scrape, a.positions} {
		s.close()
	}
	if a.lock != nil {
		_ = a.lock.Close()
	}
	if cause := context.Cause(work); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

func newAgent(ctx context.Context, o Options) (*agent, error) {
	ordinal, err := member.Ordinal(o.Identity.Pod)
	if err != nil {
		return nil, err
	}
	a := &agent{
		o: o, log: o.Log, ordinal: ordinal,
		programs:     programs{dir: o.BinDir, processes: member.NewProcesses()},
		certificates: member.NewCertificates(o.TLSDir),
		config:       member.NewConfigSource(o.Identity, o.ConfigFile, o.Log),
		control:      newSession(o, "holdfast"),
		scrape:       newSession(o, "holdfast-metrics"),
		positions:    newSession(o, "holdfast-position"),
		moved:        make(chan struct{}, 1),
	}
	a.lease = member.NewLease(o.Identity, leaseLabels(o.Identity.Cluster), a.leaseOwners, o.Client, o.Log)
	if a.version, a.major, err = a.programs.version(ctx); err != nil {
		return nil, err
	}
	a.peers = member.NewPeers(a.certificates, o.AgentAddress)
	a.labeller = member.NewLabeller(o.Identity, o.Client, a.members, o.Log)
	a.store = member.NewStore(memberapi.Status{
		Pod: o.Identity.Pod, PodUID: o.Identity.PodUID, AgentVersion: o.Version,
		Role: v1alpha1.RoleMember, State: memberapi.StateStarting, Version: a.version,
		Lag: -1,
	})
	a.labeller.Set(v1alpha1.RoleMember)
	for _, dir := range []string{o.RunDir, filepath.Join(o.RunDir, "tls")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the run directory: %w", err)
		}
	}
	return a, nil
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

// leaseOwners lets the Lease, and with it the birth latch, go with a cluster
// whose data goes too. Otherwise it stays and forbids a second birth.
func (a *agent) leaseOwners() []metav1.OwnerReference {
	config, _ := a.config.Current()
	if config == nil || config.DeletionPolicy != string(v1alpha1.DeletionDelete) {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: config.APIVersion, Kind: config.Kind, Name: config.Name, UID: types.UID(config.UID)}}
}

// startHelpers starts what runs beside the database's life. A server that ends
// sends its error.
func (a *agent) startHelpers(ctx context.Context) (<-chan error, error) {
	if a.o.FirstProcess {
		go a.programs.processes.Reap(ctx)
	}
	if _, err := a.certificates.Reload(); err != nil {
		a.log.Warn("no certificate yet", "error", err.Error())
	}
	go a.certificates.Follow(ctx, time.Second, func(err error) {
		a.log.Warn("cannot read the certificate", "error", err.Error())
	})
	go a.followCertificate(ctx)
	go a.config.Follow(ctx, a.o.Client)
	go a.labeller.Follow(ctx)
	go a.lease.Keep(ctx)

	failed := make(chan error, 2)
	serve := func(address string, run func(net.Listener) error) error {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		go func() { failed <- run(listener) }()
		return nil
	}
	err := serve(a.o.StatusAddress, func(l net.Listener) error {
		return member.Serve(ctx, l, member.StatusHandler(a.store, a.refreshPosition), a.certificates)
	})
	if err == nil {
		err = serve(a.o.ProbeAddress, func(l net.Listener) error {
			return member.Serve(ctx, l, member.ProbeHandler(a.store, a.metricsHandler()), nil)
		})
	}
	return failed, err
}

// followCertificate reports the certificate that is served.
func (a *agent) followCertificate(ctx context.Context) {
	for {
		bundle, changed := a.certificates.Current()
		if bundle != nil {
			a.store.Update(func(s *memberapi.Status) {
				s.CertificateExpiry = bundle.Certificate.Leaf.NotAfter
				s.CertificateSerial = bundle.Serial()
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// members are the pods of the cluster, as configured.
func (a *agent) members() []string {
	if config, _ := a.config.Current(); config != nil {
		return config.Members
	}
	return nil
}

// setRole is what the member is from now on, in its status and on its pod.
func (a *agent) setRole(role string) {
	a.store.Update(func(s *memberapi.Status) { s.Role = role })
	a.labeller.Set(role)
}

// report says what the member does while its database does not run.
func (a *agent) report(state memberapi.State, hold memberapi.Hold, message string) {
	before := a.store.Get()
	a.store.Update(func(s *memberapi.Status) {
		s.State, s.Hold, s.Message = state, hold, message
		s.Serving, s.Lag, s.Role, s.Source = false, -1, v1alpha1.RoleMember, ""
	})
	a.labeller.Set(v1alpha1.RoleMember)
	if before.State != state || before.Message != message {
		a.log.Info("state", "state", state, "hold", hold, "message", message)
	}
}

// findPrimary asks all other members at once which of them is the primary.
func (a *agent) findPrimary(ctx context.Context) (memberapi.Status, bool) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var asked sync.WaitGroup
	found := make(chan memberapi.Status, len(a.members()))
	for _, pod := range a.members() {
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
		return memberapi.Status{}, false
	}
}

// knownPrimary is the pod that this replica follows: the one that said so
// last, or the first member.
func (a *agent) knownPrimary() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.primary.Pod != "" {
		return a.primary.Pod
	}
	name, _, _ := strings.Cut(a.o.Identity.Pod, a.o.Identity.Cluster)
	return name + a.o.Identity.Cluster + "-0"
}
