//go:build e2e || soak

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// inContainer has commands run in a container by name: in a pod of several, one
// must be named.
func inContainer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, containerKey{}, name)
}

type containerKey struct{}

// containerOf is empty for the only container.
func containerOf(ctx context.Context) string {
	name, _ := ctx.Value(containerKey{}).(string)
	return name
}

// streamCommand runs a command in a container until it ends. It is run over SPDY only
// where no connection for WebSockets came about: a command that fails is not run again.
func streamCommand(ctx context.Context, namespace, pod string, stdin io.Reader, stdout, stderr io.Writer, command ...string) error {
	request := env.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: containerOf(ctx), Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	overSPDY, err := remotecommand.NewSPDYExecutor(env.config, "POST", request.URL())
	if err != nil {
		return err
	}
	overWebSocket, err := remotecommand.NewWebSocketExecutor(env.config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(overWebSocket, overSPDY, func(err error) bool { return httpstream.IsUpgradeFailure(err) && ctx.Err() == nil })
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// runCommand runs a command and returns its output without the blanks around it; an
// error carries what the command complained about.
func runCommand(ctx context.Context, namespace, pod, stdin string, command ...string) (string, error) {
	return runWithin(ctx, execTimeout, namespace, pod, stdin, command...)
}

func runWithin(ctx context.Context, timeout time.Duration, namespace, pod, stdin string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	var in io.Reader
	if stdin != "" {
		in = strings.NewReader(stdin)
	}
	if err := streamCommand(ctx, namespace, pod, in, &stdout, &stderr, command...); err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// psql's options for output that is nothing but values.
var plainOutput = []string{"-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"}

// runLocalQuery runs a query as the superuser inside a member, over its socket.
func runLocalQuery(ctx context.Context, namespace, pod, database, query string) (string, error) {
	command := append([]string{"psql", "-h", agentapi.RunDir, "-U", "postgres", "-d", database}, plainOutput...)
	return runCommand(inContainer(ctx, "postgres"), namespace, pod, "", append(command, "-c", query)...)
}

// clientPod is an application's: in another namespace than the cluster.
type clientPod struct{ namespace, name string }

// newClient starts one with the newest psql that the nodes have.
func newClient(t *testing.T) *clientPod {
	t.Helper()
	return newClientOf(t, clientImage(t))
}

// clientImage has the newest psql that the nodes have, and a shell.
func clientImage(t *testing.T) string {
	t.Helper()
	var lines []int
	for _, i := range env.images {
		if i.Engine == "postgres" {
			lines = append(lines, patchOf(i.Line))
		}
	}
	if len(lines) == 0 {
		skipTest(t, "needs an image of postgres for its client")
	}
	have := imageVersions("postgres", strconv.Itoa(slices.Max(lines)))
	return imageRef(t, "postgres", have[len(have)-1])
}

// newClientOf starts one of an image.
func newClientOf(t *testing.T, image string) *clientPod {
	t.Helper()
	pod := clientPodOf(newNamespace(t, "app-"), image)
	pod.Spec.Containers[0].Command = []string{"sleep", "infinity"}
	return startClient(t, pod)
}

// clientPodOf is a pod that may run under the restricted standard.
func clientPodOf(namespace, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "client"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken:  ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](999),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "client", Image: image,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

func startClient(t *testing.T, pod *corev1.Pod) *clientPod {
	t.Helper()
	must(t, env.client.Create(t.Context(), pod), "create a client's pod")
	eventually(t, podTimeout, "the client's pod runs", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if !podReady(pod) {
			return fmt.Errorf("pod is %s", pod.Status.Phase)
		}
		return nil
	})
	return &clientPod{namespace: pod.Namespace, name: pod.Name}
}

// runPsql runs a query over a connection string.
func (p *clientPod) runPsql(ctx context.Context, conninfo, query string) (string, error) {
	command := append([]string{"env", "PGCONNECT_TIMEOUT=5", "psql", conninfo}, plainOutput...)
	return runCommand(ctx, p.namespace, p.name, "", append(command, "-c", query)...)
}

// mustPsql is psql, where a failure ends the test. A Service that was just
// made may take the nodes a moment: connecting is waited for, queries are not
// tried twice.
func (p *clientPod) mustPsql(t *testing.T, conninfo, query string) string {
	t.Helper()
	var out string
	eventually(t, serviceTimeout, "a client connects", func(ctx context.Context) error {
		_, err := p.runPsql(ctx, conninfo, "select 1")
		return err
	})
	out, err := p.runPsql(t.Context(), conninfo, query)
	must(t, err, query)
	return out
}

// writeFile makes a file in the client's pod.
func (p *clientPod) writeFile(t *testing.T, path, content string) {
	t.Helper()
	if content == "" {
		must(t, errors.New("nothing to write"), path)
	}
	_, err := runCommand(t.Context(), p.namespace, p.name, content, "sh", "-c", "cat > "+path)
	must(t, err, "write "+path)
}

// writeFiles makes a folder with files in the client's pod.
func (p *clientPod) writeFiles(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	_, err := runCommand(t.Context(), p.namespace, p.name, "", "mkdir", "-p", folder)
	must(t, err, "make a folder")
	for name, content := range files {
		p.writeFile(t, folder+"/"+name, string(content))
	}
}

// uploadProgram puts a program into the pod.
func (p *clientPod) uploadProgram(t *testing.T, path string, program []byte) {
	t.Helper()
	var out bytes.Buffer
	err := streamCommand(t.Context(), p.namespace, p.name, bytes.NewReader(program), &out, &out, "sh", "-c", "cat > "+path+" && chmod +x "+path)
	must(t, err, "copy "+path+": "+out.String())
}
