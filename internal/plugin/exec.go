package plugin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// annotationContainer names the container that commands are about.
const annotationContainer = "kubectl.kubernetes.io/default-container"

type execOptions struct {
	*session
	member  string
	replica bool
}

func (o *execOptions) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&o.member, "member", "", "member to run in: its name or its ordinal (default: the primary)")
	cmd.Flags().BoolVar(&o.replica, "replica", false, "run in a replica that serves")
	cmd.MarkFlagsMutuallyExclusive("member", "replica")
	if err := cmd.RegisterFlagCompletionFunc("member", o.completeMember); err != nil {
		panic(err) // the flag was just made
	}
	return cmd
}

func psqlCommand(s *session) *cobra.Command {
	o := &execOptions{session: s}
	return o.flags(&cobra.Command{
		Use:   "psql NAME [-- ARGS]",
		Short: "Run psql in the primary, as the superuser; what follows -- is psql's",
		Example: `  kubectl holdfast psql orders
  kubectl holdfast psql orders -- -c 'select 1'
  kubectl holdfast psql orders --replica < report.sql`,
		Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if kindOf(c).sql == nil {
				return fmt.Errorf("%s %s does not speak SQL: kubectl holdfast shell %s", kindOf(c).gvk.Kind, c.GetName(), flagHint(c))
			}
			return o.run(cmd, c, append(kindOf(c).sql(c), args[1:]...))
		},
	})
}

func shellCommand(s *session) *cobra.Command {
	o := &execOptions{session: s}
	return o.flags(&cobra.Command{
		Use:   "shell NAME [-- COMMAND]",
		Short: "Open a shell in the primary's container, or run a command there",
		Args:  exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			command := args[1:]
			if len(command) == 0 {
				command = []string{"sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"}
			}
			return o.run(cmd, c, command)
		},
	})
}

// choose is the member to run in.
func (o *execOptions) choose(c v1alpha1.Cluster) (string, error) {
	st := c.CommonStatus()
	if o.member != "" {
		return memberNamed(c, o.member)
	}
	if o.replica {
		for _, m := range st.Members {
			if m.Role == v1alpha1.RoleReplica {
				return m.Name, nil
			}
		}
		return "", fmt.Errorf("no replica of %s serves: see kubectl holdfast status %s", c.GetName(), flagHint(c))
	}
	if st.Primary == "" {
		return "", fmt.Errorf("no member of %s takes writes now: choose one with --member, and see kubectl holdfast status %s", c.GetName(), flagHint(c))
	}
	return st.Primary, nil
}

// memberNamed accepts a name and an ordinal.
func memberNamed(c v1alpha1.Cluster, wanted string) (string, error) {
	var names []string
	for _, m := range c.CommonStatus().Members {
		if m.Name == wanted || m.Name == c.GetName()+"-"+wanted {
			return m.Name, nil
		}
		names = append(names, m.Name)
	}
	return "", fmt.Errorf("%s has no member %q: there are %s", c.GetName(), wanted, orDash(strings.Join(names, ", ")))
}

func (o *execOptions) completeMember(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) > 0 {
		if c, err := o.find(cmd.Context(), args[0]); err == nil {
			for _, m := range c.CommonStatus().Members {
				names = append(names, cobra.CompletionWithDesc(m.Name, m.Role))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// container of the database in a member's pod.
func container(pod *corev1.Pod) string {
	if name := pod.Annotations[annotationContainer]; name != "" {
		return name
	}
	return pod.Spec.Containers[0].Name
}

func (o *execOptions) run(cmd *cobra.Command, c v1alpha1.Cluster, command []string) error {
	member, err := o.choose(c)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := o.client.Get(cmd.Context(), client.ObjectKey{Namespace: c.GetNamespace(), Name: member}, &pod); err != nil {
		return fmt.Errorf("member %s: %w", member, err)
	}
	running := slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == container(&pod) && s.State.Running != nil
	})
	if !running {
		return fmt.Errorf("member %s does not run: see kubectl holdfast status %s", member, flagHint(c))
	}
	return o.stream(cmd, &pod, command)
}

// stream connects this terminal, or what stands in its place, to a command in
// a pod.
func (o *execOptions) stream(cmd *cobra.Command, pod *corev1.Pod, command []string) error {
	terminal, tty := cmd.InOrStdin().(*os.File)
	tty = tty && isTerminal(terminal) && stdoutIsTerminal(cmd)
	if tty && os.Getenv("TERM") != "" {
		command = append([]string{"env", "TERM=" + os.Getenv("TERM")}, command...)
	}
	executor, err := o.executor(pod, command, tty)
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Tty: tty}
	ctx := cmd.Context()
	if tty {
		was, err := term.MakeRaw(int(terminal.Fd()))
		if err != nil {
			return fmt.Errorf("put the terminal into raw mode: %w", err)
		}
		defer func() { _ = term.Restore(int(terminal.Fd()), was) }()
		streams.Stderr = nil // one stream carries both
		sizes := followSize(ctx, terminal)
		defer sizes.stop()
		streams.TerminalSizeQueue = sizes
	}
	err = executor.StreamWithContext(ctx, streams)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("run a command in %s: %w: it needs the right to create pods/exec", pod.Name, err)
	}
	return err
}

// executor speaks WebSocket, and SPDY to API servers that lack it.
func (o *execOptions) executor(pod *corev1.Pod, command []string, tty bool) (remotecommand.Executor, error) {
	request := o.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container(pod), Command: command, Stdin: true, Stdout: true, Stderr: !tty, TTY: tty,
		}, scheme.ParameterCodec)
	spdy, err := remotecommand.NewSPDYExecutor(o.config, "POST", request.URL())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", pod.Name, err)
	}
	websocket, err := remotecommand.NewWebSocketExecutor(o.config, "GET", request.URL().String())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", pod.Name, err)
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// terminalSizes tells the other side how large the terminal is.
type terminalSizes struct {
	sizes chan remotecommand.TerminalSize
	stop  context.CancelFunc
}

// Next implements remotecommand.TerminalSizeQueue.
func (t *terminalSizes) Next() *remotecommand.TerminalSize {
	size, more := <-t.sizes
	if !more {
		return nil
	}
	return &size
}

func followSize(ctx context.Context, terminal *os.File) *terminalSizes {
	ctx, stop := context.WithCancel(ctx)
	t := &terminalSizes{sizes: make(chan remotecommand.TerminalSize), stop: stop}
	go func() {
		defer close(t.sizes)
		resized, done := resizes()
		defer done()
		for {
			if width, height, err := term.GetSize(int(terminal.Fd())); err == nil {
				select {
				case t.sizes <- remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-resized:
			case <-ctx.Done():
				return
			}
		}
	}()
	return t
}
