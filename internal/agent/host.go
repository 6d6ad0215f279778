package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
	"github.com/holdfast-db/holdfast/internal/agent/cgroup"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/insights"
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agent/trends"
	"github.com/holdfast-db/holdfast/internal/agent/tuning"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// HostOptions are what every agent is started with.
type HostOptions struct {
	Identity identity.Identity
	Version  string // of the agent
	Client   kubernetes.Interface
	Log      *slog.Logger
	// DatabaseVersion of the programs.
	DatabaseVersion string
	// TLSDir and ConfigFile; see agentapi.
	TLSDir, ConfigFile string
	// StatusAddress and ProbeAddress to listen on; one that begins with a slash
	// is a socket's path.
	StatusAddress, ProbeAddress string
	// Space measures the member's volume; where it is nil, SpaceOf the mount
	// point that agentapi names. Allocate says whether a file on it can grow;
	// where it is nil, that is not tried.
	Space    func() diskspace.Space
	Allocate func() error
	// Flush has the database flush a record of its own, and says whether it did;
	// nil for a database that is not asked.
	Flush func(context.Context) bool
	// Handlers answer the operator and the members at further paths; nil for
	// none.
	Handlers map[string]http.Handler
	// TextLog is how the database's text log is read; nil where it is not.
	TextLog *insights.TextLog
	// DataDir is the member's volume, where trends and what is usual are kept; empty for none.
	DataDir string
	// Measure measures the database for recommendations about settings; nil where it is not.
	Measure tuning.Measure
	// Signals measures the database for anomalies; nil where it is not.
	Signals *anomalies.Signals
	// RunDir is where the agent listens for programs of its container.
	RunDir string
	// Messages answer what other members post, by path; nil for none.
	Messages map[string]http.Handler
	// OmitMoving leaves out of a status what moves all the time of what only this
	// engine reports, and MarkDown what is true only while the database runs; nil
	// for nothing.
	OmitMoving, MarkDown func(*agentapi.Status)
}

// Host is what stands around a database in its pod, whichever it is: what the
// member says of itself, and what it hears from the operator.
type Host struct {
	Store        *statusserver.Store
	Certificates *statusserver.Certificates
	Config       *ConfigSource
	Labeller     *Labeller
	// Space watches the volume.
	Space *SpaceWatch
	// Insights is what is found in the database's text log; nil where it is not read.
	Insights *insights.Analyzer
	// Trends is how the volume fills; nil where no text log is read.
	Trends *trends.Recorder
	// Anomalies is what is not as usual; nil where no signals are measured.
	Anomalies *anomalies.Recorder
	// Usage is what CPU and memory the container uses; nil where no volume keeps it.
	Usage *trends.UsageRecorder
	// Tuning is what was measured of the database while the member led.
	Tuning *tuning.Recorder
	// Lock on the volume, once Loop has it.
	Lock *volumelock.VolumeLock

	o HostOptions
}

// NewHost prepares a member that is starting.
func NewHost(o HostOptions) *Host {
	h := &Host{
		o:            o,
		Certificates: statusserver.NewCertificates(o.TLSDir),
		Config:       NewConfigSource(o.Identity, o.ConfigFile, o.Log),
		Store: statusserver.NewEngineStore(agentapi.Status{
			Pod: o.Identity.Pod, PodUID: o.Identity.PodUID, AgentVersion: o.Version,
			Role: v1alpha1.RoleMember, State: agentapi.StateStarting, Version: o.DatabaseVersion,
			Lag: -1,
		}, o.OmitMoving),
	}
	space := o.Space
	if space == nil {
		space = func() diskspace.Space { return diskspace.SpaceOf(agentapi.DataDir) }
	}
	h.Space = &SpaceWatch{Measure: space, Allocate: o.Allocate, Suspected: make(chan struct{}, 1)}
	if o.TextLog != nil {
		h.Insights = insights.NewAnalyzer(*o.TextLog, o.Identity.Pod, o.Identity.PodUID)
		if o.DataDir != "" {
			h.addRecorders()
		}
	}
	h.Tuning = tuning.NewRecorder(o.Identity.Pod, o.Identity.PodUID)
	h.Labeller = NewLabeller(o.Identity, o.Client, h.ListMembers, o.Log)
	if o.DataDir != "" {
		h.Usage = h.newUsage()
	}
	h.Labeller.SetRole(v1alpha1.RoleMember)
	return h
}

// Run runs loop until it ends, which it must when its context does. What
// stands around the database outlives ctx: a stop in order still labels the
// pod and answers the operator. Helpers run beside it.
func (h *Host) Run(ctx context.Context, refresh func(context.Context), metrics http.Handler, loop func(context.Context), helpers ...func(context.Context)) error {
	outer, stop := context.WithCancel(context.WithoutCancel(ctx))
	var servers sync.WaitGroup
	defer servers.Wait() // their addresses are free again when it ends
	defer stop()
	if h.Trends != nil {
		metrics = metricfamily.AppendTo(metrics, h.Trends)
		go h.Trends.Follow(outer)
	}
	if h.Anomalies != nil {
		metrics = metricfamily.AppendTo(metrics, h.Anomalies)
		go h.Anomalies.Follow(outer)
	}
	if h.Usage != nil {
		metrics = metricfamily.AppendTo(metrics, h.Usage)
		go h.Usage.Follow(outer)
	}
	failed, err := h.startServers(outer, refresh, metrics, &servers)
	if err != nil {
		return err
	}
	for _, helper := range helpers {
		go helper(outer)
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-failed:
			cancel(err)
		case <-work.Done():
		}
	}()
	loop(work)
	if h.Lock != nil {
		_ = h.Lock.Close()
	}
	if cause := context.Cause(work); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// startServers starts what runs beside the database's life. A server that ends sends
// its error.
func (h *Host) startServers(ctx context.Context, refresh func(context.Context), metrics http.Handler, servers *sync.WaitGroup) (<-chan error, error) {
	if _, err := h.Certificates.Reload(); err != nil {
		h.o.Log.Warn("no certificate yet", "error", err.Error())
	}
	go h.Certificates.Follow(ctx, time.Second, func(err error) {
		h.o.Log.Warn("cannot read the certificate", "error", err.Error())
	})
	go h.followCertificate(ctx)
	go h.Config.Follow(ctx, h.o.Client)
	go h.Labeller.FollowRole(ctx)
	go h.Space.Follow(ctx, h.Store)
	h.followInsights(ctx)
	if h.o.Measure != nil {
		go h.Tuning.Follow(ctx, h.o.Log, h.o.Measure, func(revision string) {
			h.Store.Update(func(s *agentapi.Status) { s.TuningRevision = revision })
		})
	}

	failed := make(chan error, 2)
	serve := func(address string, run func(net.Listener) error) error {
		listener, err := listenAt(address)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		servers.Go(func() { failed <- run(listener) })
		return nil
	}
	err := serve(h.o.StatusAddress, func(l net.Listener) error {
		mux := http.NewServeMux()
		mux.Handle("/", statusserver.StatusHandler(h.Store, refresh, h.o.Flush))
		if h.Insights != nil {
			mux.Handle("GET "+agentapi.InsightsPath, statusserver.RequireMember(h.Insights))
		}
		mux.Handle("GET "+agentapi.TuningPath, statusserver.RequireMember(h.Tuning))
		for path, handler := range h.o.Handlers {
			mux.Handle("GET "+path, statusserver.RequireMember(handler))
		}
		for path, handler := range h.o.Messages {
			mux.Handle("POST "+path, statusserver.RequirePeer(handler))
		}
		return statusserver.Serve(ctx, l, mux, h.Certificates)
	})
	if err == nil {
		err = serve(h.o.ProbeAddress, func(l net.Listener) error {
			return statusserver.Serve(ctx, l, statusserver.ProbeHandler(h.Store, metrics), nil)
		})
	}
	return failed, err
}

// addRecorders has the member measured over days: in the metrics, the insights and the
// answer to the operator.
func (h *Host) addRecorders() {
	h.Trends = trends.NewRecorder(trends.Options{
		Log: h.o.Log, Volume: h.volume(), Note: h.Insights.Note,
	})
	if h.o.Signals != nil {
		h.Anomalies = anomalies.NewRecorder(anomalies.Options{
			Log: h.o.Log, Dir: h.o.DataDir, Space: h.Space.Measure, Note: h.Insights.Note,
			Status: h.Store.Get, Signals: *h.o.Signals,
		})
	}
	h.Insights.AddToReports(func(into *agentapi.Insights) {
		h.Trends.Report(into)
		if h.Anomalies != nil {
			h.Anomalies.Report(into)
		}
	})
}

// volume is where what is measured is kept.
func (h *Host) volume() trends.Volume {
	return trends.Volume{Dir: h.o.DataDir, Space: h.Space.Measure, Serves: func() bool { return h.Store.Get().Serving }}
}

// newUsage measures the container for recommendations about its resources. That an earlier
// one was killed is in the pod alone.
func (h *Host) newUsage() *trends.UsageRecorder {
	recorder := trends.NewUsageRecorder(trends.UsageOptions{
		Log: h.o.Log, Volume: h.volume(), Container: cgroup.Own(),
		Publish: func(now time.Time, urgent bool) bool {
			revision := h.Tuning.Renew(now, urgent)
			if revision != "" {
				h.Store.Update(func(s *agentapi.Status) { s.TuningRevision = revision })
			}
			return revision != ""
		},
	})
	h.Tuning.AddToReports(recorder.Report)
	h.Labeller.ObservePod(func(pod *corev1.Pod) {
		if at := findMemoryKill(pod); !at.IsZero() {
			recorder.RecordKill(at)
		}
	})
	return recorder
}

// findMemoryKill is when the last container of the database was killed for lack of memory;
// zero for never. The agent runs in that container.
func findMemoryKill(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.LastTerminationState.Terminated; t != nil && t.Reason == "OOMKilled" {
			return t.FinishedAt.UTC()
		}
	}
	return time.Time{}
}

// followInsights reads the text log, and answers people who run a program in the
// container. The database does not depend on either.
func (h *Host) followInsights(ctx context.Context) {
	if h.Insights == nil {
		return
	}
	go h.Insights.Follow(ctx, func(revision string) {
		h.Store.Update(func(s *agentapi.Status) { s.InsightsRevision = revision })
	})
	go func() {
		if err := h.Insights.ServeSocket(ctx, filepath.Join(h.o.RunDir, agentapi.InsightsSocket)); err != nil {
			h.o.Log.Warn("kubectl holdfast insights does not work", "error", err.Error())
		}
	}()
}

// listenAt at host:port, or at a socket that an earlier process may have left.
func listenAt(address string) (net.Listener, error) {
	if !strings.HasPrefix(address, "/") {
		return net.Listen("tcp", address)
	}
	if err := os.Remove(address); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", address)
}

// followCertificate reports the certificate that is served.
func (h *Host) followCertificate(ctx context.Context) {
	for {
		bundle, changed := h.Certificates.Current()
		if bundle != nil {
			h.Store.Update(func(s *agentapi.Status) {
				s.CertificateExpiry = bundle.Expiry
				s.CertificateSerial = bundle.Serial()
				s.TLSHash = bundle.Hash
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// ListMembers are the pods of the cluster, as configured.
func (h *Host) ListMembers() []string {
	if config, _ := h.Config.Current(); config != nil {
		return config.Members
	}
	return nil
}

// ListOwners lets what agents make, such as a Lease that guards the bootstrap, go
// with a cluster whose data goes too. Otherwise it stays, and forbids a second
// bootstrap.
func (h *Host) ListOwners() []metav1.OwnerReference {
	config, _ := h.Config.Current()
	if config == nil || config.DeletionPolicy != string(v1alpha1.DeletionDelete) {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: config.APIVersion, Kind: config.Kind, Name: config.Name, UID: types.UID(config.UID)}}
}

// SetRole is what the member is from now on, in its status and on its pod.
func (h *Host) SetRole(role string) {
	h.Store.Update(func(s *agentapi.Status) { s.Role = role })
	h.Labeller.SetRole(role)
}

// ReportState says what the member does while its database does not run.
func (h *Host) ReportState(state agentapi.State, hold agentapi.Hold, message string) {
	before := h.Store.Get()
	h.Store.Update(func(s *agentapi.Status) {
		s.State, s.Hold, s.Message = state, hold, message
		s.Serving, s.Lag, s.Role = false, -1, v1alpha1.RoleMember
		if h.o.MarkDown != nil {
			h.o.MarkDown(s)
		}
		if hold != agentapi.HoldVolumeFull {
			s.DiskSpaceNeeded = 0
		}
	})
	h.Labeller.SetRole(v1alpha1.RoleMember)
	if before.State != state || before.Message != message {
		h.o.Log.Info("state", "state", state, "hold", hold, "message", message)
	}
}
