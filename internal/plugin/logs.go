package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// retryInterval is how long --follow waits for a member that restarts.
const retryInterval = time.Second

// longestLine of a log.
const longestLine = 1 << 20

type logsOptions struct {
	*session
	follow, previous bool
	member           string
	tail             int64
	since            time.Duration
}

func logsCommand(s *session) *cobra.Command {
	o := &logsOptions{session: s}
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the logs of all members, each line with its member's name",
		Args:  exactlyOne,
		RunE:  o.runLogs,
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on printing, through restarts too")
	f.BoolVarP(&o.previous, "previous", "p", false, "print the logs of the containers before their last restart")
	f.StringVar(&o.member, "member", "", "one member only: its name or its ordinal")
	f.Int64Var(&o.tail, "tail", -1, "how many of each member's last lines to print; all when negative")
	f.DurationVar(&o.since, "since", 0, "how far back to print, such as 10m; everything when 0")
	if err := cmd.RegisterFlagCompletionFunc("member", (&execOptions{session: s}).completeMember); err != nil {
		panic(err) // the flag was just made
	}
	return cmd
}

func (o *logsOptions) runLogs(cmd *cobra.Command, args []string) error {
	c, err := o.findCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	names, err := o.memberNames(c)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	failures := make([]error, len(names))
	var reading sync.WaitGroup
	for i, name := range names {
		out := &prefixed{mu: &mu, out: cmd.OutOrStdout(), prefix: prefixOf(cmd, i, name)}
		read := func() { failures[i] = o.printLog(cmd.Context(), c.GetNamespace(), name, out) }
		if o.follow {
			reading.Go(read)
		} else {
			read()
		}
	}
	reading.Wait()
	if cmd.Context().Err() != nil {
		return nil
	}
	return reportFailures(cmd, failures)
}

func (o *logsOptions) memberNames(c v1alpha1.Cluster) ([]string, error) {
	if o.member != "" {
		name, err := memberNamed(c, o.member)
		return []string{name}, err
	}
	var names []string
	for _, m := range c.CommonStatus().Members {
		names = append(names, m.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no members yet: see kubectl holdfast status %s", c.GetName(), flagHint(c))
	}
	return names, nil
}

// reportFailures warns of members that could not be read; an error only where none could.
func reportFailures(cmd *cobra.Command, failures []error) error {
	failed := 0
	for _, err := range failures {
		if err != nil {
			failed++
		}
	}
	if failed == len(failures) {
		return errors.Join(failures...)
	}
	for _, err := range failures {
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", err)
		}
	}
	return nil
}

func prefixOf(cmd *cobra.Command, i int, name string) string {
	colours := []colour{cyan, green, yellow, "35", "34", "36;1", "32;1", "33;1", "35;1"}
	return styleOf(cmd).paintText(colours[i%len(colours)], name+" | ")
}

// printLog prints one member's log; with --follow, that of the containers after it
// too.
func (o *logsOptions) printLog(ctx context.Context, namespace, name string, out io.Writer) error {
	options := &corev1.PodLogOptions{Follow: o.follow, Previous: o.previous}
	if o.tail >= 0 {
		options.TailLines = &o.tail
	}
	if o.since > 0 {
		options.SinceSeconds = new(int64(o.since.Seconds()))
	}
	for {
		err := o.printContainerLog(ctx, namespace, name, options, out)
		if !o.follow || ctx.Err() != nil || apierrors.IsForbidden(err) {
			return err
		}
		if err == nil {
			// The container ended: what follows is new.
			options.TailLines, options.SinceSeconds = nil, nil
			options.SinceTime = new(metav1.Now())
		}
		if !waitFor(ctx, retryInterval) {
			return nil
		}
	}
}

func (o *logsOptions) printContainerLog(ctx context.Context, namespace, name string, options *corev1.PodLogOptions, out io.Writer) error {
	pod, err := o.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("member %s: %w", name, err)
	}
	options.Container = containerOf(pod)
	body, err := o.kube.CoreV1().Pods(namespace).GetLogs(name, options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("logs of member %s: %w", name, err)
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if _, err := out.Write(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("logs of member %s: %w", name, err)
	}
	return nil
}

// prefixed writes whole lines, each with a prefix.
type prefixed struct {
	mu     *sync.Mutex
	out    io.Writer
	prefix string
}

// Write implements io.Writer for one line without its end.
func (p *prefixed) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.out, p.prefix+string(line)+"\n")
	return len(line), err
}
