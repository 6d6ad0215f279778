//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// state is the folder of test/cluster.
const state = "../../.cluster"

// sideBySide is how many tests run at the same time where the machine is not busy,
// unless -parallel says.
const sideBySide = 3

// unlimited is more parallel tests than there are: those that wait for their
// turn count for Go, too.
const unlimited = "1000"

// env is the cluster that the tests run on.
var env struct {
	config *rest.Config
	client client.WithWatch
	kube   kubernetes.Interface
	images []image
	// operatorImage is the installed operator's.
	operatorImage string
	// sideBySide is how many tests run at the same time.
	sideBySide int
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := chooseSideBySide(); err != nil {
		panic(err)
	}
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // of streams that end while they are pinged
	if err := connectToCluster(); err != nil {
		fmt.Fprintln(os.Stderr, "no cluster to test on:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.Exit(code)
}

// chooseSideBySide reads the flag -parallel, and leaves no limit of Go's own.
func chooseSideBySide() error {
	env.sideBySide = sideBySide
	var errs []error
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.parallel" {
			chosen, err := strconv.Atoi(f.Value.String())
			env.sideBySide, errs = chosen, append(errs, err)
		}
	})
	return errors.Join(append(errs, flag.Set("test.parallel", unlimited))...)
}

// kubeconfigFile is how to reach the cluster of the tests.
func kubeconfigFile() string {
	if path := os.Getenv("KUBECONFIG"); path != "" {
		return path
	}
	return filepath.Join(state, "kubeconfig")
}

func connectToCluster() error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigFile())
	if err != nil {
		return err
	}
	config.QPS, config.UserAgent = -1, "holdfast-e2e"
	scheme := apiruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	env.config = config
	if env.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if env.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if env.images, err = readImages(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	deployment, err := installed.getDeployment(ctx)
	if err != nil {
		return err
	}
	env.operatorImage = deployment.Spec.Template.Spec.Containers[0].Image
	return nil
}

// newNamespace is one test's own, where the restricted Pod Security Standard
// is enforced. It is deleted with the test.
func newNamespace(t *testing.T, purpose string) string {
	t.Helper()
	base := strings.ToLower(filepath.Base(t.Name()))
	base = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, base)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-" + strings.Trim(base[:min(len(base), 32)], "-") + "-" + purpose,
		Labels: map[string]string{
			namespaceLabel:                               "true",
			"pod-security.kubernetes.io/enforce":         "restricted",
			"pod-security.kubernetes.io/enforce-version": "latest",
		},
	}}
	must(t, env.client.Create(t.Context(), ns), "create a namespace")
	t.Cleanup(func() {
		if t.Failed() {
			dumpNamespace(t, ns.Name)
			if os.Getenv("HOLDFAST_E2E_KEEP") != "" {
				t.Logf("namespace %s is kept", ns.Name)
				return
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		if err := env.client.Delete(ctx, ns); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// namespaceLabel marks the tests' namespaces.
const namespaceLabel = "e2e-of-holdfast"

func must(t testing.TB, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// slowness is how many times longer than on a quick machine is waited for anything.
const slowness = 2

// eventually waits until a condition holds: it returns nil then, and until
// then an error that says what is missing.
func eventually(t testing.TB, timeout time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	timeout *= slowness
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var missing error
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		if missing == nil || ctx.Err() == nil {
			missing = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, timeout, missing)
		case <-time.After(pollInterval):
		}
	}
}
