//go:build bench

package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/pki"
)

const nodeName = "simulated"

// agents play scheduler, kubelet and the agents of every member; all pods have
// the address of this machine, and the name that a client asks for says which
// one is meant.
type agents struct {
	t      *testing.T
	client client.Client
	// reports are written by programs in pods.
	reports dynamic.Interface
	cache   cache.Cache
	host    string
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu    sync.Mutex
	pairs map[string]*tls.Certificate
	// news of a namespace's configurations and certificates.
	news map[string]chan struct{}
}

// startAgents runs until the test ends.
func (p *plane) startAgents() *agents {
	p.t.Helper()
	t := p.t
	a := &agents{
		t: t, client: p.client, host: address(t), pairs: map[string]*tls.Certificate{}, news: map[string]chan struct{}{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
	}
	var err error
	if a.reports, err = dynamic.NewForConfig(p.config); err != nil {
		t.Fatal(err)
	}
	if err := p.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}); err != nil {
		t.Fatal(err)
	}
	if a.cache, err = cache.New(p.config, cache.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	a.onChange(&corev1.Pod{}, func(obj client.Object) { a.queue.Add(client.ObjectKeyFromObject(obj)) })
	for _, obj := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}} {
		a.onChange(obj, a.announceChange)
	}
	p.progress.follow(a)
	go func() { _ = a.cache.Start(t.Context()) }()
	if !a.cache.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache did not start")
	}
	for range 8 {
		go a.runWorker(t.Context())
	}
	t.Cleanup(a.queue.ShutDown)
	a.serveAgents()
	return a
}

// onChange hears of every change of a kind.
func (a *agents) onChange(obj client.Object, heard func(client.Object)) {
	a.t.Helper()
	informer, err := a.cache.GetInformer(a.t.Context(), obj, cache.BlockUntilSynced(false))
	if err != nil {
		a.t.Fatal(err)
	}
	hear := func(obj any) {
		if o, ok := obj.(client.Object); ok && o.GetLabels()[v1alpha1.LabelCluster] != "" {
			heard(o)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: hear, UpdateFunc: func(_, obj any) { hear(obj) }})
	if err != nil {
		a.t.Fatal(err)
	}
}

// address is this machine's own: endpoint slices refuse loopback.
func address(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback")
	return ""
}

func (a *agents) runWorker(ctx context.Context) {
	for {
		name, shutdown := a.queue.Get()
		if shutdown {
			return
		}
		if err := a.advancePod(ctx, name); err != nil && ctx.Err() == nil {
			a.queue.AddRateLimited(name)
		} else {
			a.queue.Forget(name)
		}
		a.queue.Done(name)
	}
}

// advancePod takes a pod one step further.
func (a *agents) advancePod(ctx context.Context, name types.NamespacedName) error {
	pod := &corev1.Pod{}
	if err := a.cache.Get(ctx, name, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded && pod.DeletionTimestamp == nil:
		return nil
	case pod.DeletionTimestamp != nil:
		return client.IgnoreNotFound(a.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	case pod.Spec.NodeName == "":
		err := a.client.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	case pod.Status.Phase != corev1.PodRunning:
		running := pod.DeepCopy()
		running.Status.Phase, running.Status.PodIP, running.Status.PodIPs = corev1.PodRunning, a.host, []corev1.PodIP{{IP: a.host}}
		for _, t := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
			running.Status.Conditions = append(running.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
		}
		for _, c := range pod.Spec.Containers {
			running.Status.ContainerStatuses = append(running.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		}
		return a.client.Status().Patch(ctx, running, client.MergeFrom(pod))
	case pod.Labels[v1alpha1.LabelBackup] != "":
		return a.endBackup(ctx, pod)
	case pod.Labels[v1alpha1.LabelRole] == "":
		label := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{%q:%q}}}`, pod.Name, v1alpha1.LabelRole, v1alpha1.RolePrimary)
		return a.client.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.ApplyPatchType, []byte(label)), client.FieldOwner(v1alpha1.AgentFieldManager))
	}
	return nil
}

// endBackup lets the program of a backup's pod report that all is stored, and end.
func (a *agents) endBackup(ctx context.Context, pod *corev1.Pod) error {
	container := pod.Spec.Containers[0]
	var task agentapi.BackupTask
	if err := json.Unmarshal([]byte(container.Env[0].Value), &task); err != nil {
		return err
	}
	run := v1alpha1.BackupRun{Pod: pod.Name, Step: v1alpha1.BackupStepDone, Progress: "100%", Result: &v1alpha1.BackupResult{
		Size: resource.MustParse("12Mi"), DataSize: resource.MustParse("40Mi"), Version: "17.4", EndPosition: "0/3000000", Manifest: "m", Checksum: "sha256:0",
	}}
	reporter := &backup.Object{Client: a.reports, Task: task, Log: slog.New(slog.DiscardHandler), Cancel: func(error) {}}
	if err := reporter.ReportEnd(ctx, run); err != nil {
		return err
	}
	done := pod.DeepCopy()
	done.Status.Phase = corev1.PodSucceeded
	done.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container.Name, Image: container.Image,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}}}
	return a.client.Status().Patch(ctx, done, client.MergeFrom(pod))
}

// announceChange wakes what waits for news of a namespace.
func (a *agents) announceChange(obj client.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if waiting := a.news[obj.GetNamespace()]; waiting != nil {
		close(waiting)
		delete(a.news, obj.GetNamespace())
	}
}

// nextNews is closed at the next news of a namespace.
func (a *agents) nextNews(namespace string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news[namespace] == nil {
		a.news[namespace] = make(chan struct{})
	}
	return a.news[namespace]
}

// serveAgents answers for all members.
func (a *agents) serveAgents() {
	a.t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(a.host, fmt.Sprint(agentapi.StatusPort)))
	if err != nil {
		a.t.Fatal(err)
	}
	config := &tls.Config{ClientAuth: tls.RequireAnyClientCert, GetCertificate: a.memberCertificate, MinVersion: tls.VersionTLS13}
	answers := http.NewServeMux()
	answers.HandleFunc("/", a.answerPoll)
	answers.HandleFunc("GET "+agentapi.InsightsPath, a.answerMeasured(measuredInsights))
	answers.HandleFunc("GET "+agentapi.TuningPath, a.answerMeasured(measuredTuning))
	server := &http.Server{Handler: answers, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(tls.NewListener(listener, config)) }()
	a.t.Cleanup(func() { _ = server.Close() })
}

// splitServerName is the member of a server name, as pod, cluster and namespace.
func splitServerName(name string) (pod, cluster, namespace string, err error) {
	parts := strings.Split(name, ".")
	if len(parts) != 4 {
		return "", "", "", errors.New("no member is named " + name)
	}
	return parts[0], strings.TrimSuffix(parts[1], "-members"), parts[2], nil
}

func (a *agents) memberCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	_, cluster, namespace, err := splitServerName(hello.ServerName)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	if err := a.cache.Get(hello.Context(), client.ObjectKey{Namespace: namespace, Name: cluster + "-tls"}, secret); err != nil {
		return nil, err
	}
	key := string(secret.UID) + secret.ResourceVersion
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pairs[key] == nil {
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		if err != nil {
			return nil, err
		}
		a.pairs[key] = &pair
	}
	return a.pairs[key], nil
}

// answerPoll answers at once, or when there is another revision than the one asked about.
func (a *agents) answerPoll(w http.ResponseWriter, r *http.Request) {
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	over := time.After(wait)
	_, _, namespace, _ := splitServerName(r.TLS.ServerName)
	for {
		news := a.nextNews(namespace)
		status, err := a.memberStatus(r.Context(), r.TLS.ServerName)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if status.Revision != r.URL.Query().Get("after") {
			_ = json.NewEncoder(w).Encode(status)
			return
		}
		select {
		case <-news:
		case <-over:
			_ = json.NewEncoder(w).Encode(status)
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (a *agents) memberStatus(ctx context.Context, name string) (*agentapi.Status, error) {
	podName, cluster, namespace, err := splitServerName(name)
	if err != nil {
		return nil, err
	}
	pod, config, secret := &corev1.Pod{}, &corev1.ConfigMap{}, &corev1.Secret{}
	for suffix, obj := range map[string]client.Object{podName: pod, cluster + "-config": config, cluster + "-tls": secret} {
		if err := a.cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: suffix}, obj); err != nil {
			return nil, err
		}
	}
	s := &agentapi.Status{
		Time: time.Now(), Pod: pod.Name, PodUID: string(pod.UID), Role: v1alpha1.RolePrimary, State: agentapi.StateRunning, Serving: true,
		Version: "17.4", SystemIdentifier: "7300000000000000001",
		ConfigHash: agentapi.HashConfig([]byte(config.Data[agentapi.ConfigKey])), CertificateSerial: pki.ReadSerial(secret.Data["tls.crt"]),
	}
	s.Revision = s.PodUID + s.ConfigHash + s.CertificateSerial
	s.InsightsRevision, s.TuningRevision = measuredRevision, measuredRevision
	return s, nil
}

// measuredRevision is of what every member measured, which stays the same.
const measuredRevision = "1"

// answerMeasured answers with what a member measured.
func (a *agents) answerMeasured(measured func(pod, uid string) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, _, namespace, err := splitServerName(r.TLS.ServerName)
		pod := &corev1.Pod{}
		if err == nil {
			err = a.cache.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pod)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(measured(pod.Name, string(pod.UID)))
	}
}

// measuredInsights are a few classes of events, as of a server that has run for a while.
func measuredInsights(pod, uid string) any {
	at := time.Now().Add(-time.Hour).Truncate(time.Hour)
	insights := agentapi.Insights{Pod: pod, PodUID: uid, Revision: measuredRevision, Since: at, Lines: 5000}
	for _, class := range []string{"LockWait", "Deadlock", "TemporaryFile", "CheckpointsTooFrequent"} {
		insights.Classes = append(insights.Classes, agentapi.Insight{Class: class, Severity: "Warning", Count: 12, First: at, Last: at, Unit: "s", Largest: 2.5, Latest: 1.5})
	}
	return insights
}

// measuredTuning is a day with a load for which no setting is too small.
func measuredTuning(pod, uid string) any {
	end := time.Now().Truncate(time.Hour)
	slot := agentapi.TuningSlot{
		Start: end.Add(-24 * time.Hour), End: end, Seconds: 86000,
		Sums: map[string]float64{agentapi.TuningSamples: 5700}, Peaks: map[string]float64{agentapi.TuningConnections: 20, agentapi.TuningDataSize: 1 << 30},
		Settings: map[string]float64{"shared_buffers": 128 << 20, "work_mem": 4 << 20, "max_wal_size": 1 << 30, "checkpoint_timeout": 300, "max_connections": 100, "hash_mem_multiplier": 2},
	}
	for _, name := range []string{
		agentapi.TuningBlocksRead, agentapi.TuningBlocksHit, agentapi.TuningTempFiles, agentapi.TuningTempBytes, agentapi.TuningCheckpointsRequested,
		agentapi.TuningCheckpointsTimed, agentapi.TuningCheckpointsAsked, agentapi.TuningWALBytes, agentapi.TuningTransactions,
	} {
		slot.Sums[name] = 1
	}
	return agentapi.Tuning{
		Pod: pod, PodUID: uid, Revision: measuredRevision, Slots: []agentapi.TuningSlot{slot},
		Sizing: &agentapi.Sizing{Seconds: 3600, CPU: 100, MostCPU: 200, Memory: 256 << 20, MostMemory: 300 << 20, MostHeld: 400 << 20},
	}
}
