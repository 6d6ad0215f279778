//go:build bench

// Package bench measures the operator as a process of its own against a real
// API server. Its members are simulated: pods that no kubelet runs, and agents that
// answer over mutual TLS as real ones do.
package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// plane is a control plane, and the operator's binary.
type plane struct {
	t          *testing.T
	dir        string
	kubeconfig string
	config     *rest.Config
	client     client.WithWatch
	audit      *auditLog
	progress   progress
}

// startPlane makes a control plane whose own controllers are not held back: the
// operator is what is measured.
func startPlane(t *testing.T) *plane {
	t.Helper()
	logf.SetLogger(logr.Discard())
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	p := &plane{t: t, dir: t.TempDir()}
	p.audit = newAuditLog(t, p.dir)
	env := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join("..", "..", "config", "crd")}, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute,
	}
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", "8589934592")
	flags := env.ControlPlane.GetAPIServer().Configure()
	flags.Set("authorization-mode", "RBAC").Set("shutdown-delay-duration", "0s").
		Set("service-cluster-ip-range", "10.0.0.0/16"). // two addresses for each cluster
		Set("audit-policy-file", p.audit.policy).Set("audit-log-path", p.audit.file).Set("audit-log-mode", "blocking").
		Set("audit-log-maxsize", "100000") // in MB: a file that is rotated would be read in part
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server (KUBEBUILDER_ASSETS names its binaries): %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	p.config = rest.CopyConfig(config)
	p.config.QPS = -1
	if p.client, err = client.NewWithWatch(p.config, client.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	p.kubeconfig = p.newUser(env, operatorName)
	p.runProgram("controller-manager", filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager"),
		"--kubeconfig="+p.newUser(env, "controller-manager"), "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--controllers=statefulset-controller,garbage-collector-controller,endpointslice-controller,disruption-controller,serviceaccount-controller,job-controller")
	return p
}

// newUser makes one who may do everything, and returns the file to log in with.
func (p *plane) newUser(env *envtest.Environment, name string) string {
	p.t.Helper()
	user, err := env.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	config, err := user.KubeConfig()
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.dir, name+".kubeconfig")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// runProgram starts a program that ends with the test.
func (p *plane) runProgram(name, binary string, args ...string) (stop func()) {
	p.t.Helper()
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
	}
	p.t.Cleanup(stop)
	return stop
}

// operator is a running operator.
type operator struct {
	t       *testing.T
	address string
	stop    func()
}

// buildBinary makes the operator's binary, with the build tags that TAGS names.
func (p *plane) buildBinary() string {
	p.t.Helper()
	binary := filepath.Join(p.dir, "holdfast")
	cmd := exec.CommandContext(p.t.Context(), "go", "build", "-trimpath", "-tags="+os.Getenv("TAGS"), "-ldflags=-s -w", "-o", binary, ".")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("build the operator: %v\n%s", err, out)
	}
	return binary
}

// startOperator starts the operator with its defaults, the election of a leader
// apart.
func (p *plane) startOperator(binary, address string) *operator {
	p.t.Helper()
	o := &operator{t: p.t, address: address}
	args := []string{"manager", "--enable-leader-election=false", "--agent-image=holdfast:bench", "--metrics-bind-address=" + address, "--profiling", "--health-probe-bind-address=0"}
	o.stop = p.runProgram("operator", binary, append(args, strings.Fields(os.Getenv("BENCH_OPERATOR_FLAGS"))...)...)
	p.awaitCondition("the operator answers", func(ctx context.Context) bool {
		response, err := http.Get("http://" + address + "/metrics") //nolint:noctx // a local process
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
	return o
}

func (p *plane) awaitCondition(what string, holds func(context.Context) bool) {
	p.t.Helper()
	deadline := time.Now().Add(3 * time.Hour)
	for !holds(p.t.Context()) {
		if time.Now().After(deadline) {
			p.t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// readMetrics are the sums over all labels, by name.
func (o *operator) readMetrics() map[string]float64 {
	o.t.Helper()
	sums := map[string]float64{}
	o.scrape(func(name string, value float64) { sums[name] += value })
	return sums
}

// countSeries is how many series there are of metrics whose names begin so.
func (o *operator) countSeries(begin string) float64 {
	o.t.Helper()
	count := 0.0
	o.scrape(func(name string, _ float64) {
		if strings.HasPrefix(name, begin) {
			count++
		}
	})
	return count
}

// scrape reads the metrics, and calls each for every series.
func (o *operator) scrape(each func(name string, value float64)) {
	o.t.Helper()
	response, err := http.Get("http://" + o.address + "/metrics") //nolint:noctx // a local process
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, found := strings.Cut(lines.Text(), "} ")
		if !found {
			series, value, found = strings.Cut(lines.Text(), " ")
		}
		name, _, _ := strings.Cut(series, "{")
		if number, err := strconv.ParseFloat(value, 64); found && err == nil {
			each(name, number)
		}
	}
}

// collectGarbage lets the operator collect its garbage, and keeps the heap's profile
// where BENCH_HEAP names a file.
func (o *operator) collectGarbage() {
	o.t.Helper()
	o.keepProfile("heap?gc=1", os.Getenv("BENCH_HEAP"))
}

// profileCPU keeps where the next seconds of CPU go. What it returns says whether
// they are over.
func (o *operator) profileCPU(file string) (over func() bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.keepProfile("profile?seconds=15", file)
	}()
	return func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// keepProfile writes a profile in a file, if one is named.
func (o *operator) keepProfile(profile, file string) {
	response, err := http.Get("http://" + o.address + "/debug/pprof/" + profile) //nolint:noctx // a local process
	if err != nil {
		o.t.Error(err)
		return
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		o.t.Errorf("%s: %s %v", profile, response.Status, err)
	}
	if file == "" {
		return
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		o.t.Error(err)
	}
}

func mebibytes(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
