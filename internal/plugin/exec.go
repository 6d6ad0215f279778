package plugin

import (
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
	"github.com/holdfast-db/holdfast/internal/plugin/terminal"
)

// annotationContainer names the container that commands are about.
const annotationContainer = "kubectl.kubernetes.io/default-container"

type execOptions struct {
	*session
	member  string
	replica bool
}

func (o *execOptions) addFlags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&o.member, "member", "", "member to run in: its name or its ordinal (default: the primary or leader)")
	if err := cmd.RegisterFlagCompletionFunc("member", o.completeMember); err != nil {
		panic(err) // the flag was just made
	}
	return cmd
}

// program is a database's own client.
type program struct {
	// name of the program, and of the verb that runs it; rights that it has; and
	// options that it is often run with.
	name, rights, example, options string
	// replicas says that some members are replicas, which one may ask instead.
	replicas bool
	// command line in a member's container, with a person's arguments.
	command func(c v1alpha1.Cluster, member string, args []string) []string
}

// clientCommand runs the client of a kind's database.
func clientCommand(s *session, k kind) *cobra.Command {
	o := &execOptions{session: s}
	p := k.client
	cmd := o.addFlags(&cobra.Command{
		Use:     p.name + " NAME [-- ARGS]",
		Short:   fmt.Sprintf("Run %s in the pod of the %s, %s; what follows -- is %s's", p.name, k.lead, p.rights, p.name),
		Example: p.example,
		Args:    exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.findCluster(cmd.Context(), args[0], k)
			if err != nil {
				return err
			}
			if found := kindOf(c); found.gvk != k.gvk {
				return fmt.Errorf("%s is no %s: kubectl holdfast %s %s", nameOf(c), k.gvk.Kind, found.client.name, flagHint(c))
			}
			return o.runInMember(cmd, c, func(member string) []string { return p.command(c, member, args[1:]) })
		},
	})
	cmd.ValidArgsFunction = s.completeNames(k)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: what is meant for %s follows --, as in kubectl holdfast %s NAME -- %s", err, p.name, p.name, p.options)
	})
	if p.replicas {
		cmd.Flags().BoolVar(&o.replica, "replica", false, "run in a replica that serves")
		cmd.MarkFlagsMutuallyExclusive("member", "replica")
	}
	return cmd
}

func shellCommand(s *session) *cobra.Command {
	o := &execOptions{session: s}
	cmd := o.addFlags(&cobra.Command{
		Use:   "shell NAME [-- COMMAND]",
		Short: "Open a shell in the container of the primary or leader, or run a command there",
		Args:  exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.findCluster(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			command := args[1:]
			if len(command) == 0 {
				command = kindOf(c).shell
			}
			if len(command) == 0 {
				return noShell(c)
			}
			return o.runInMember(cmd, c, func(string) []string { return command })
		},
	})
	cmd.Flags().BoolVar(&o.replica, "replica", false, "run in a replica that serves")
	cmd.MarkFlagsMutuallyExclusive("member", "replica")
	return cmd
}

// noShell says what to do in the place of opening one.
func noShell(c v1alpha1.Cluster) error {
	k := kindOf(c)
	return fmt.Errorf("the image of %s has no shell: kubectl holdfast %s %s runs %s; what else the image has runs as kubectl holdfast shell %s -- COMMAND",
		k.engine, k.client.name, flagHint(c), k.client.name, flagHint(c))
}

// chooseMember is the member to run in.
func (o *execOptions) chooseMember(c v1alpha1.Cluster) (string, error) {
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
		if c, err := o.findCluster(cmd.Context(), args[0]); err == nil {
			for _, m := range c.CommonStatus().Members {
				names = append(names, cobra.CompletionWithDesc(m.Name, m.Role))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// containerOf is the container of the database in a member's pod.
func containerOf(pod *corev1.Pod) string {
	if name := pod.Annotations[annotationContainer]; name != "" {
		return name
	}
	return pod.Spec.Containers[0].Name
}

// runInMember runs a command in the chosen member's container.
func (o *execOptions) runInMember(cmd *cobra.Command, c v1alpha1.Cluster, command func(member string) []string) error {
	member, err := o.chooseMember(c)
	if err != nil {
		return err
	}
	var pod corev1.Pod
	if err := o.client.Get(cmd.Context(), client.ObjectKey{Namespace: c.GetNamespace(), Name: member}, &pod); err != nil {
		return fmt.Errorf("member %s: %w", member, err)
	}
	running := slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == containerOf(&pod) && s.State.Running != nil
	})
	if !running {
		return fmt.Errorf("member %s does not run: see kubectl holdfast status %s", member, flagHint(c))
	}
	line := command(member)
	if _, tty := o.stdinTerminal(cmd); tty && kindOf(c).shell != nil && os.Getenv("TERM") != "" {
		line = append([]string{"env", "TERM=" + os.Getenv("TERM")}, line...)
	}
	return o.streamCommand(cmd, &pod, line)
}

// stdinTerminal is the terminal that a person sits at, if it is one.
func (o *execOptions) stdinTerminal(cmd *cobra.Command) (*os.File, bool) {
	file, isFile := cmd.InOrStdin().(*os.File)
	return file, isFile && isTerminal(file) && stdoutIsTerminal(cmd)
}

// streamCommand connects this terminal, or what stands in its place, to a command in
// a pod.
func (o *execOptions) streamCommand(cmd *cobra.Command, pod *corev1.Pod, command []string) error {
	stdin, tty := o.stdinTerminal(cmd)
	executor, err := o.newExecutor(pod, &corev1.PodExecOptions{
		Container: containerOf(pod), Command: command, Stdin: true, Stdout: true, Stderr: !tty, TTY: tty,
	})
	if err != nil {
		return err
	}
	streams := remotecommand.StreamOptions{Stdin: cmd.InOrStdin(), Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Tty: tty}
	ctx := cmd.Context()
	if tty {
		was, err := term.MakeRaw(int(stdin.Fd()))
		if err != nil {
			return fmt.Errorf("put the terminal into raw mode: %w", err)
		}
		defer func() { _ = term.Restore(int(stdin.Fd()), was) }()
		streams.Stderr = nil // one stream carries both
		sizes := terminal.FollowSize(ctx, stdin)
		defer sizes.Stop()
		streams.TerminalSizeQueue = sizes
	}
	err = executor.StreamWithContext(ctx, streams)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("run a command in %s: %w: it needs the right to create pods/exec", pod.Name, err)
	}
	return err
}

// newExecutor speaks WebSocket, and SPDY to API servers that lack it.
func (s *session) newExecutor(pod *corev1.Pod, options *corev1.PodExecOptions) (remotecommand.Executor, error) {
	request := s.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec)
	spdy, err := remotecommand.NewSPDYExecutor(s.config, "POST", request.URL())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", pod.Name, err)
	}
	websocket, err := remotecommand.NewWebSocketExecutor(s.config, "GET", request.URL().String())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", pod.Name, err)
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
