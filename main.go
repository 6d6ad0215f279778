// Holdfast runs PostgreSQL, MySQL and etcd clusters from what Git says and keeps them there.
// This one binary is the operator (manager), the process beside each database
// (agent), and a plugin of kubectl.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fluxcd/pkg/runtime/leaderelection"
	"github.com/fluxcd/pkg/runtime/logger"
	"github.com/fluxcd/pkg/runtime/pprof"
	"github.com/fluxcd/pkg/runtime/probes"
	"github.com/spf13/cobra"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	memberetcd "github.com/holdfast-db/holdfast/internal/agent/etcd"
	"github.com/holdfast-db/holdfast/internal/agent/guard"
	"github.com/holdfast-db/holdfast/internal/agent/insights"
	membermysql "github.com/holdfast-db/holdfast/internal/agent/mysql"
	memberpostgres "github.com/holdfast-db/holdfast/internal/agent/postgres"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/backup"
	backupetcd "github.com/holdfast-db/holdfast/internal/backup/etcd"
	backupmysql "github.com/holdfast-db/holdfast/internal/backup/mysql"
	backuppostgres "github.com/holdfast-db/holdfast/internal/backup/postgres"
	"github.com/holdfast-db/holdfast/internal/binlogarchive"
	"github.com/holdfast-db/holdfast/internal/controller"
	backupcontroller "github.com/holdfast-db/holdfast/internal/controller/backup"
	"github.com/holdfast-db/holdfast/internal/controller/clustermetrics"
	databasecontroller "github.com/holdfast-db/holdfast/internal/controller/database"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/engine/mysql"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
	"github.com/holdfast-db/holdfast/internal/importer"
	"github.com/holdfast-db/holdfast/internal/notify"
	"github.com/holdfast-db/holdfast/internal/plugin"
	"github.com/holdfast-db/holdfast/internal/restore"
	restoreetcd "github.com/holdfast-db/holdfast/internal/restore/etcd"
	restoremysql "github.com/holdfast-db/holdfast/internal/restore/mysql"
	restorepostgres "github.com/holdfast-db/holdfast/internal/restore/postgres"
	"github.com/holdfast-db/holdfast/internal/secrets"
	"github.com/holdfast-db/holdfast/internal/tracing"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := commandFor(os.Args).ExecuteContext(ctx); err != nil {
		code, print := plugin.ExitCode(err)
		if ended := (*backup.Exit)(nil); errors.As(err, &ended) {
			code = ended.Code
		}
		if ended := (*wal.Exit)(nil); errors.As(err, &ended) {
			code = ended.Code
		}
		if ended := (*guard.Exit)(nil); errors.As(err, &ended) {
			code = ended.Code
		}
		if print {
			fmt.Fprintln(os.Stderr, "holdfast:", err)
		}
		stop()
		os.Exit(code)
	}
}

// commandFor is the command for a name that the binary is called by: kubectl finds
// its plugins, and what completes their arguments, by name.
func commandFor(args []string) *cobra.Command {
	switch strings.TrimSuffix(filepath.Base(args[0]), ".exe") {
	case "kubectl-holdfast", "kubectl_holdfast":
		return plugin.NewRootCommand(version + goVersion())
	case "kubectl_complete-holdfast":
		root := plugin.NewRootCommand(version + goVersion())
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
		return root
	}
	return newRootCommand()
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "Databases that do not drift: the operator and its members' agent",
		Version:       version + goVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	agents := &cobra.Command{Use: "agent", Short: "Run beside a database, as its supervisor"}
	agents.AddCommand(agent.InstallCommand(), insights.NewCommand(), memberpostgres.NewCommand(version), memberetcd.NewCommand(version), membermysql.NewCommand(version))
	root.AddCommand(managerCommand(), agents, jobCommand(), wal.NewCommand())
	root.AddCommand(plugin.NewVerbCommands()...)
	return root
}

// jobCommand is what the operator's Jobs run, out of the way of the verbs.
func jobCommand() *cobra.Command {
	job := &cobra.Command{Use: "job", Short: "What the operator's Jobs run", Hidden: true}
	job.AddCommand(backup.NewCommand(version, map[string]func(agentapi.BackupTask) (backup.Source, error){"postgres": backuppostgres.New, "mysql": backupmysql.New, "etcd": backupetcd.New}, map[string]backup.PruneFunc{"PostgresCluster": wal.PruneArchive, "MySQLCluster": binlogarchive.PruneArchive}))
	job.AddCommand(backup.NewCheckCommand())
	restoring := map[string]func(agentapi.RestoreTask) (restore.Engine, error){"postgres": restorepostgres.New, "mysql": restoremysql.New, "etcd": restoreetcd.New}
	job.AddCommand(restore.NewCommand(version, restoring), restore.NewDrillCommand(restoring))
	job.AddCommand(importer.NewCommand(version))
	return job
}

func goVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return " (" + info.GoVersion + ")"
	}
	return ""
}

// leaderLease is the name of the Lease that one operator holds.
const leaderLease = "holdfast-leader"

// gcPercent trades processor time, of which an idle operator needs next to
// none, for memory, which grows with the number of clusters. GOGC overrides it.
const gcPercent = 20

// managerOptions are the flags of the operator.
type managerOptions struct {
	namespaces                    []string
	metricsAddress, healthAddress string
	profiling                     bool
	eventsAddress                 string
	agentImage                    string
	postgresRepository            string
	mysqlRepository               string
	etcdRepository                string
	concurrent, concurrentBackups int
	// qps and burst limit the requests to the API server.
	qps         float32
	burst       int
	gracePeriod time.Duration
	leader      leaderelection.Options
	log         logger.Options
}

func managerCommand() *cobra.Command {
	var o managerOptions
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the operator",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.runManager(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.namespaces, "watch-namespaces", nil, "namespaces to watch, separated by commas; all when empty")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 for none")
	f.BoolVar(&o.profiling, "profiling", false, "serve profiles of the operator under /debug/pprof/ at the address of /metrics, without authentication")
	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	f.StringVar(&o.eventsAddress, "events-addr", "", "address of Flux's notification-controller, or of another receiver of its events; none when empty")
	f.StringVar(&o.agentImage, "agent-image", os.Getenv("HOLDFAST_AGENT_IMAGE"), "image whose binary is injected into members; the operator's own, read from its pod, when empty")
	f.StringVar(&o.postgresRepository, "postgres-image-repository", "docker.io/library/postgres", "repository that PostgreSQL versions are looked up in")
	f.StringVar(&o.mysqlRepository, "mysql-image-repository", "docker.io/library/mysql", "repository that MySQL versions are looked up in")
	f.StringVar(&o.etcdRepository, "etcd-image-repository", "quay.io/coreos/etcd", "repository that etcd versions are looked up in")
	f.IntVar(&o.concurrent, "concurrent", 4, "clusters that are reconciled at the same time")
	f.IntVar(&o.concurrentBackups, "concurrent-backups", 20, "backups that are made at the same time, of all clusters; 0 for any number")
	f.Float32Var(&o.qps, "kube-api-qps", 200, "requests per second that the operator sends to the API server, over a longer time")
	f.IntVar(&o.burst, "kube-api-burst", 400, "requests that it may send at once")
	f.DurationVar(&o.gracePeriod, "graceful-shutdown-timeout", 20*time.Second, "time for passes under way to end before the operator stops")
	o.leader.BindFlags(f)
	o.log.BindFlags(f)
	return cmd
}

// limitRequests sets how fast requests are sent. client-go would take 0 for its own, slower
// defaults, and a negative rate for no limit.
func (o *managerOptions) limitRequests(config *rest.Config) error {
	if !(o.qps > 0) {
		return fmt.Errorf("--kube-api-qps %v: write a number of requests per second above 0", o.qps)
	}
	if o.burst < 1 {
		return fmt.Errorf("--kube-api-burst %d: write a number of requests of 1 or more", o.burst)
	}
	config.QPS, config.Burst = o.qps, o.burst
	return nil
}

// metricsServer is what is served beside the probes. Profiles show what is in memory, such
// as names and errors, and taking one costs processor time: they are served on request only.
func (o *managerOptions) metricsServer() metricsserver.Options {
	server := metricsserver.Options{BindAddress: o.metricsAddress}
	if o.profiling {
		server.ExtraHandlers = pprof.GetHandlers()
	}
	return server
}

func (o *managerOptions) runManager(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	logger.SetLogger(logger.NewLogger(o.log))
	log := ctrl.Log.WithName("setup")

	scheme := apiruntime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("no cluster to talk to: %w", err)
	}
	if err := o.limitRequests(config); err != nil {
		return err
	}
	if err := o.waitForAPIServer(ctx, config, scheme, log); err != nil {
		return err
	}
	tracer, err := tracing.New(ctx, tracing.Options{Version: version, FindBlocked: engine.FindBlockedReason, Log: ctrl.Log.WithName("tracing"), Registerer: metrics.Registry})
	if err != nil {
		return err
	}
	defer tracer.Shutdown() // after the last pass
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		NewClient:                     tracer.NewClient,
		Cache:                         controller.CacheOptions(o.namespaces),
		Metrics:                       o.metricsServer(),
		HealthProbeBindAddress:        o.healthAddress,
		LeaderElection:                o.leader.Enable,
		LeaderElectionID:              leaderLease,
		LeaderElectionReleaseOnCancel: o.leader.ReleaseOnCancel,
		LeaseDuration:                 &o.leader.LeaseDuration,
		RenewDeadline:                 &o.leader.RenewDeadline,
		RetryPeriod:                   &o.leader.RetryPeriod,
		GracefulShutdownTimeout:       &o.gracePeriod,
	})
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	probes.SetupChecks(mgr, log)
	recorder, err := o.wireEvents(mgr)
	if err != nil {
		return err
	}
	if err := o.wireKinds(mgr, recorder, tracer); err != nil {
		return err
	}
	log.Info("starting", "version", version, "agentImage", o.agentImage, "namespaces", strings.Join(o.namespaces, ","))
	return mgr.Start(ctx)
}

// wireEvents makes what records events, and passes them on where that is asked for.
func (o *managerOptions) wireEvents(mgr ctrl.Manager) (events.EventRecorder, error) {
	recorder := mgr.GetEventRecorder("holdfast")
	if o.eventsAddress == "" {
		return recorder, nil
	}
	notifier, err := notify.New(notify.Options{
		Address: o.eventsAddress, Reader: mgr.GetCache(), Scheme: mgr.GetScheme(), Log: mgr.GetLogger().WithName("notifications"), Registerer: metrics.Registry,
	})
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(notifier); err != nil {
		return nil, fmt.Errorf("set up notifications: %w", err)
	}
	return notifier.Recorder(recorder), nil
}

// wireKinds wires every kind of cluster.
func (o *managerOptions) wireKinds(mgr ctrl.Manager, recorder events.EventRecorder, tracer *tracing.Tracer) error {
	live, err := tracer.NewClient(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("set up a client: %w", err)
	}
	applier, err := apply.New(mgr.GetCache(), live, apply.Options{Prune: controller.Applied(), Registerer: metrics.Registry})
	if err != nil {
		return fmt.Errorf("set up the applier: %w", err)
	}
	metadata, err := secrets.NewMetadata(mgr, controller.CacheOptions(o.namespaces).DefaultNamespaces)
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	w := wiring{mgr: mgr, recorder: recorder, tracer: tracer, live: live, applier: applier, metadata: metadata, agentImage: o.agentImage, concurrent: o.concurrent, pauses: clustermetrics.NewPauses(metrics.Registry), kinds: map[string]backupcontroller.Copies{}, clusters: map[string]client.Object{}}
	if err := errors.Join(
		wireKind(w, "PostgresCluster", o.postgresRepository, postgres.DecodeStatus, agentclient.IsPrimary,
			func() *v1alpha1.PostgresCluster { return &v1alpha1.PostgresCluster{} },
			func(k *memberset.MemberEngine) kindEngine[*v1alpha1.PostgresCluster, memberset.Observation] {
				return &postgres.Engine{MemberEngine: k}
			}),
		wireKind(w, "MySQLCluster", o.mysqlRepository, mysql.DecodeStatus, agentclient.IsPrimary,
			func() *v1alpha1.MySQLCluster { return &v1alpha1.MySQLCluster{} },
			func(k *memberset.MemberEngine) kindEngine[*v1alpha1.MySQLCluster, memberset.Observation] {
				return &mysql.Engine{MemberEngine: k}
			}),
		wireKind(w, "EtcdCluster", o.etcdRepository, etcd.DecodeStatus, etcd.IsLeader,
			func() *v1alpha1.EtcdCluster { return &v1alpha1.EtcdCluster{} },
			func(k *memberset.MemberEngine) kindEngine[*v1alpha1.EtcdCluster, etcd.Observation] {
				return &etcd.Engine{MemberEngine: k, Dial: etcd.Dial}
			}),
	); err != nil {
		return err
	}
	return errors.Join(w.wireBackups(o.concurrentBackups), w.wireDatabases(), w.wireClusterMetrics())
}

// wireClusterMetrics wires what is reported of each cluster, of any kind.
func (w wiring) wireClusterMetrics() error {
	collector := clustermetrics.New(clustermetrics.Options{Reader: w.mgr.GetCache(), Scheme: w.mgr.GetScheme(), Clusters: w.clusters, Elected: w.mgr.Elected(), Clock: clock.RealClock{}})
	if err := errors.Join(collector.Watch(context.Background(), w.mgr.GetCache()), metrics.Registry.Register(collector)); err != nil {
		return fmt.Errorf("set up the metrics of clusters: %w", err)
	}
	return nil
}

// wireDatabases wires the kind Database, whose clusters are of those kinds.
func (w wiring) wireDatabases() error {
	r := &databasecontroller.Reconciler{
		Client: w.mgr.GetClient(), Live: w.live, Applier: w.applier, Engines: databasecontroller.Engines(),
		Recorder: w.recorder, Tracer: w.tracer,
	}
	if err := r.Setup(w.mgr, w.concurrent); err != nil {
		return fmt.Errorf("set up Database: %w", err)
	}
	return nil
}

// wireBackups wires the kind Backup, which is of clusters of all kinds.
func (w wiring) wireBackups(concurrent int) error {
	applier, err := apply.New(w.mgr.GetCache(), w.live, apply.Options{Prune: backupcontroller.ListOwnedKinds()})
	if err != nil {
		return fmt.Errorf("set up the applier of backups: %w", err)
	}
	collector := backupcontroller.Collector{Reader: w.mgr.GetCache(), Scheme: w.mgr.GetScheme(), Kinds: slices.Sorted(maps.Keys(w.clusters)), Clock: clock.RealClock{}}
	if err := metrics.Registry.Register(collector); err != nil {
		return fmt.Errorf("set up the metrics of backups: %w", err)
	}
	r := &backupcontroller.Reconciler{
		Client: w.mgr.GetClient(), Live: w.live, Applier: applier, Kinds: w.kinds, AgentImage: w.agentImage, Concurrent: concurrent,
		Recorder: w.recorder, Clock: clock.RealClock{}, Tracer: w.tracer,
	}
	if err := r.Setup(w.mgr, w.clusters); err != nil {
		return fmt.Errorf("set up Backup: %w", err)
	}
	return nil
}

// wiring is what all kinds share.
type wiring struct {
	mgr        ctrl.Manager
	recorder   events.EventRecorder
	tracer     *tracing.Tracer
	live       client.Client
	applier    controller.Syncer
	metadata   secrets.Metadata
	agentImage string
	concurrent int
	pauses     clustermetrics.Pauses
	// kinds and clusters, by name, are what can be backed up.
	kinds    map[string]backupcontroller.Copies
	clusters map[string]client.Object
}

// kindEngine is an engine that remembers clusters.
type kindEngine[C v1alpha1.Cluster, O any] interface {
	engine.Engine[C, O]
	controller.Forgetter
}

// wireKind makes the controller of one kind, its engine, and the poller of its
// members.
func wireKind[C v1alpha1.Cluster, O any](w wiring, kind, repository string, decode func([]byte) (agentapi.Status, error), leads func(*agentapi.Status) bool, newCluster func() C, newEngine func(*memberset.MemberEngine) kindEngine[C, O]) error {
	poller := agentclient.New(agentclient.Options{Log: w.mgr.GetLogger().WithName("members"), Decode: decode, Leads: leads, Observe: w.pauses.Kind(kind)})
	if err := w.mgr.Add(poller); err != nil {
		return fmt.Errorf("set up %s: %w", kind, err)
	}
	named, keys := secrets.New(w.metadata, w.live), secrets.New(w.metadata, w.live)
	e := newEngine(&memberset.MemberEngine{
		Settings: objects.Settings{ImageRepository: repository, AgentImage: w.agentImage, OperatorNamespace: ownNamespace(namespaceFile)},
		Reader:   w.mgr.GetCache(), Writer: w.live, Members: poller, Secrets: named, Clock: clock.RealClock{},
	})
	r := &controller.Reconciler[C, O]{
		Client:     w.mgr.GetClient(),
		Live:       w.live,
		AgentImage: w.agentImage,
		Engine:     e,
		Applier:    w.applier,
		Forgetters: []controller.Forgetter{e, poller, named, keys},
		Keys:       keys,
		Pauses:     poller.Pauses,
		Recorder:   w.recorder,
		Clock:      clock.RealClock{},
		New:        newCluster,
		Tracer:     w.tracer,
	}
	if err := r.Setup(w.mgr, v1alpha1.GroupVersion.WithKind(kind), w.concurrent, poller.EventSource(), named.EventSource(), keys.EventSource()); err != nil {
		return fmt.Errorf("set up %s: %w", kind, err)
	}
	w.kinds[kind], w.clusters[kind] = r, newCluster()
	return nil
}
