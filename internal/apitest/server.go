package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	// assets names the folder of the Kubernetes binaries.
	assets = "KUBEBUILDER_ASSETS"
	// startTimeout is how long one program may take to start; two cores may be
	// busy with compiling.
	startTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
)

// server is the control plane of one test binary.
type server struct {
	env        *envtest.Environment
	config     *rest.Config
	controller *exec.Cmd
	dir        string
}

// running is set by Main.
var running *server

// RunTests starts a control plane, runs the tests, and stops it again. It does not
// return.
func RunTests(m *testing.M) {
	code, err := runWithControlPlane(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apitest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runWithControlPlane(m *testing.M) (code int, err error) {
	if os.Getenv(assets) == "" {
		return 1, errors.New(assets + " is not set: it names the folder with kube-apiserver, etcd and kube-controller-manager " +
			"(go run . assets in test/cluster prints it)")
	}
	dir, err := os.MkdirTemp("", "holdfast-apitest-")
	if err != nil {
		return 1, fmt.Errorf("make a folder: %w", err)
	}
	s := &server{dir: dir}
	defer func() { err = errors.Join(err, s.stopControlPlane()) }()
	if err := s.startControlPlane(); err != nil {
		return 1, err
	}
	running = s
	return m.Run(), nil
}

func (s *server) startControlPlane() error {
	// Tests speak through testing.T; the machinery's own log is noise.
	logf.SetLogger(logr.Discard())
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return fmt.Errorf("add the API to the scheme: %w", err)
	}
	s.env = &envtest.Environment{
		CRDDirectoryPaths:        []string{filepath.Join(repositoryRoot(), "config", "crd")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
	}
	flags := s.env.ControlPlane.GetAPIServer().Configure()
	flags.Set("authorization-mode", "RBAC")
	// The default of envtest, 254 addresses, ends in the middle of a package's
	// tests: every Service keeps its own until its namespace is gone.
	flags.Set("service-cluster-ip-range", "10.0.0.0/16")
	// Without nodes and kubelets there is nothing to wait for on the way down.
	flags.Set("shutdown-delay-duration", "0s")
	config, err := s.env.Start()
	if err != nil {
		return fmt.Errorf("start the API server: %w", err)
	}
	s.config = config
	return s.startController()
}

// startController runs kube-controller-manager as cluster administrator.
func (s *server) startController() error {
	kubeconfig := filepath.Join(s.dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, s.env.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	log, err := os.Create(filepath.Join(s.dir, "controller-manager.log"))
	if err != nil {
		return fmt.Errorf("create the log file: %w", err)
	}
	defer func() { _ = log.Close() }()
	s.controller = exec.Command(filepath.Join(os.Getenv(assets), "kube-controller-manager"), //nolint:gosec // a test's own binary
		"--kubeconfig="+kubeconfig,
		"--leader-elect=false",
		"--controllers="+strings.Join([]string{
			"statefulset-controller", "garbage-collector-controller", "endpointslice-controller",
			"disruption-controller", "namespace-controller", "serviceaccount-controller",
			"persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
			"job-controller", "clusterrole-aggregation-controller", "horizontal-pod-autoscaler-controller",
		}, ","),
		"--horizontal-pod-autoscaler-sync-period=1s",
		"--concurrent-gc-syncs=4",
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--secure-port=0",
		"--v=2",
	)
	s.controller.Stdout, s.controller.Stderr = log, log
	// It dies with the test binary, also where that is killed.
	s.controller.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.controller.Start(); err != nil {
		return fmt.Errorf("start the controller manager: %w", err)
	}
	return s.awaitController()
}

// awaitController waits until the controllers work: a namespace then gets its
// default service account.
func (s *server) awaitController() error {
	clients, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	err = wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, startTimeout, true,
		func(ctx context.Context) (bool, error) {
			accounts, err := clients.CoreV1().ServiceAccounts("default").List(ctx, listAll)
			return err == nil && len(accounts.Items) > 0, nil
		})
	if err != nil {
		return fmt.Errorf("wait for the controller manager (its log is %s): %w", filepath.Join(s.dir, "controller-manager.log"), err)
	}
	return nil
}

func (s *server) stopControlPlane() error {
	var errs []error
	if s.controller != nil && s.controller.Process != nil {
		errs = append(errs, s.controller.Process.Kill())
		// It was killed: how it ended says nothing.
		_ = s.controller.Wait()
	}
	if s.env != nil {
		errs = append(errs, s.env.Stop())
	}
	errs = append(errs, os.RemoveAll(s.dir))
	return errors.Join(errs...)
}

// repositoryRoot is the root of the source tree.
func repositoryRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
