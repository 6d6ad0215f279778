// Package notificationcontroller runs Flux's notification-controller for tests, as a process
// of this machine beside an API server. It is built from source, in the version that its own
// module pins.
package notificationcontroller

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const module = "github.com/fluxcd/notification-controller"

const (
	// startTimeout is for the controller to be ready, and stopTimeout to end.
	startTimeout = time.Minute
	stopTimeout  = 10 * time.Second
	// kindsTimeout is for the API server to serve the controller's kinds.
	kindsTimeout = 30 * time.Second
	interval     = 100 * time.Millisecond
)

// Options of a notification-controller.
type Options struct {
	// Root of this repository.
	Root string
	// Config is an administrator's of the API server.
	Config *rest.Config
	// Host is the address of this machine at which it takes events.
	Host string
}

// Controller is a notification-controller.
type Controller struct {
	// URL takes events.
	URL string

	t       *testing.T
	command []string
	env     []string
	ready   string
	// stop ends it; nil while it does not run.
	stop func()
}

// New installs the kinds. The first build of the controller takes about four minutes on two
// idle processors.
func New(t *testing.T, o Options) *Controller {
	t.Helper()
	binary, err := build(t.Context(), o.Root)
	if err != nil {
		t.Fatal(err)
	}
	installKinds(t, o)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(kubeconfig, rest.CopyConfig(o.Config)); err != nil {
		t.Fatal(err)
	}
	events, health := freeAddress(t, o.Host), freeAddress(t, "127.0.0.1")
	return &Controller{
		URL: "http://" + events + "/", t: t, ready: "http://" + health + "/readyz", env: append(os.Environ(), "KUBECONFIG="+kubeconfig),
		command: []string{
			binary, "--events-addr=" + events, "--health-addr=" + health, "--metrics-addr=0",
			"--receiverAddr=" + freeAddress(t, "127.0.0.1"), "--watch-all-namespaces",
		},
	}
}

// Start runs the controller until Stop, or the test's end.
func (c *Controller) Start() {
	c.t.Helper()
	var log bytes.Buffer
	command := exec.Command(c.command[0], c.command[1:]...)
	command.Env = c.env
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		c.t.Fatalf("start the notification-controller: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	c.stop = sync.OnceFunc(func() { end(command, ended) })
	c.t.Cleanup(func() {
		c.stop()
		if c.t.Failed() {
			c.t.Logf("the notification-controller:\n%s", log.String())
		}
	})
	awaitReady(c.t, c.ready)
}

// Stop ends the controller.
func (c *Controller) Stop() { c.stop() }

// end ends the process, and waits until it is gone.
func end(command *exec.Cmd, ended chan struct{}) {
	_ = command.Process.Signal(os.Interrupt)
	select {
	case <-ended:
	case <-time.After(stopTimeout):
		_ = command.Process.Kill()
		<-ended
	}
}

// build builds the controller into bin, and returns its path.
func build(ctx context.Context, root string) (string, error) {
	binary, err := filepath.Abs(filepath.Join(root, "bin", "notification-controller"))
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, module)
	command.Dir = filepath.Join(root, "test/tools/notification-controller")
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the notification-controller: %w\n%s", err, out)
	}
	return binary, nil
}

// installKinds applies the kinds from the controller's own module, waits until they are
// served, and removes them with the test.
func installKinds(t *testing.T, o Options) {
	t.Helper()
	c, err := client.New(o.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range readKinds(t, o.Root) {
		if err := client.IgnoreAlreadyExists(c.Create(t.Context(), kind.DeepCopy())); err != nil {
			t.Fatalf("install %s: %v", kind.GetName(), err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), kindsTimeout)
			defer cancel()
			if err := client.IgnoreNotFound(c.Delete(ctx, kind)); err != nil {
				t.Errorf("delete %s: %v", kind.GetName(), err)
			}
		})
	}
	for deadline := time.Now().Add(kindsTimeout); ; time.Sleep(interval) {
		err := c.List(t.Context(), NewList("Alert"))
		if err == nil {
			err = c.List(t.Context(), NewList("Provider"))
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the kinds of the notification-controller are not served: %v", err)
		}
	}
}

// APIVersion of alerts and providers.
const APIVersion = "notification.toolkit.fluxcd.io/v1beta3"

// NewList is an empty list of a kind.
func NewList(kind string) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(APIVersion)
	list.SetKind(kind + "List")
	return list
}

// NewProvider is a provider whose notifications are posted to an address as they are.
func NewProvider(namespace, name, address string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"type": "generic", "address": address}}}
	u.SetAPIVersion(APIVersion)
	u.SetKind("Provider")
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// readKinds reads the CRDs of the controller's module.
func readKinds(t *testing.T, root string) []*unstructured.Unstructured {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir = filepath.Join(root, "test/tools/notification-controller")
	command.Env = append(os.Environ(), "GOWORK=off")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("find the module of the notification-controller: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the notification-controller's module has no kinds: %v", err)
	}
	slices.Sort(files)
	kinds := make([]*unstructured.Unstructured, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kinds[i] = &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &kinds[i].Object); err != nil {
			t.Fatalf("%s: %v", filepath.Base(file), err)
		}
	}
	return kinds
}

// writeKubeconfig writes a client's configuration as a file.
func writeKubeconfig(path string, from *rest.Config) error {
	if err := rest.LoadTLSFiles(from); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: from.Host, CertificateAuthorityData: from.CAData, InsecureSkipTLSVerify: from.Insecure}
	config.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: from.CertData, ClientKeyData: from.KeyData, Token: from.BearerToken}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	return clientcmd.WriteToFile(*config, path)
}

// freeAddress is one of a host that nothing listens on.
func freeAddress(t *testing.T, host string) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	return listener.Addr().String()
}

// awaitReady waits until a probe is answered.
func awaitReady(t *testing.T, probe string) {
	t.Helper()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(interval) {
		answer, err := http.Get(probe)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("status %s", answer.Status)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the notification-controller is not ready: %v", err)
		}
	}
}
