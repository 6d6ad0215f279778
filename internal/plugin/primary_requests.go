package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// primaryOptions are those of the requests for another primary.
type primaryOptions struct {
	*session
	to      string
	force   bool
	wait    bool
	timeout time.Duration
}

// addWait adds --wait and how long it lasts.
func (o *primaryOptions) addWait(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until another member leads, or the request is refused")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long --wait waits; the request itself stays")
	return cmd
}

func switchoverCommand(s *session) *cobra.Command {
	o := &primaryOptions{session: s}
	cmd := &cobra.Command{
		Use:   "switchover NAME",
		Short: "Have another member of a PostgreSQL or MySQL cluster lead, without loss; --to names it",
		Example: `  kubectl holdfast switchover orders
  kubectl holdfast switchover orders --to orders-1 --wait`,
		Args:              exactlyOne,
		ValidArgsFunction: s.completeNames(postgresKind(), mysqlKind()),
		RunE:              o.runSwitchover,
	}
	cmd.Flags().StringVar(&o.to, "to", "", "member that is to lead: its name or its ordinal (default: any)")
	return o.addWait(cmd)
}

func promoteCommand(s *session) *cobra.Command {
	o := &primaryOptions{session: s}
	cmd := &cobra.Command{
		Use:               "promote NAME POD",
		Short:             "Have one member of a PostgreSQL cluster without a primary lead with what it has; what it lacks is lost",
		Example:           `  kubectl holdfast promote orders orders-1 --force --wait`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: s.completeNames(postgresKind()),
		RunE:              o.runPromote,
	}
	cmd.Flags().BoolVar(&o.force, "force", false, "accept that acknowledged writes that the member lacks are lost")
	return o.addWait(cmd)
}

func (o *primaryOptions) runSwitchover(cmd *cobra.Command, args []string) error {
	c, err := o.findPrimaryOf(cmd.Context(), args[0], postgresKind(), mysqlKind())
	if err != nil {
		return err
	}
	target, to := "", "another member"
	if o.to != "" {
		if target, err = memberNamed(c, o.to); err != nil {
			return err
		}
		to = target
	}
	primary := c.CommonStatus().Primary
	switch primary {
	case "":
		return fmt.Errorf("%s: no member takes writes now, so there is nothing to switch over from: see kubectl holdfast status %s", nameOf(c), flagHint(c))
	case target:
		return fmt.Errorf("%s: %s leads already", nameOf(c), target)
	}
	return o.request(cmd, c, v1alpha1.AnnotationSwitchover, target, fmt.Sprintf("is to switch over from %s to %s", primary, to))
}

func (o *primaryOptions) runPromote(cmd *cobra.Command, args []string) error {
	c, err := o.findPrimaryOf(cmd.Context(), args[0], postgresKind())
	if err != nil {
		return err
	}
	target, err := memberNamed(c, args[1])
	if err != nil {
		return err
	}
	primary := c.CommonStatus().Primary
	switch {
	case primary != "":
		return fmt.Errorf("%s: %s takes writes, so there is no need to lose any: use kubectl holdfast switchover %s --to %s", nameOf(c), primary, flagHint(c), target)
	case !o.force:
		return fmt.Errorf("%s: %s would lead with what it has, and acknowledged writes that it lacks are lost; if you accept that, repeat the command with --force", nameOf(c), target)
	}
	return o.request(cmd, c, v1alpha1.AnnotationPromote, target, "is to be led by "+target+", with what it has")
}

// findPrimaryOf finds a cluster of the kinds that know a request of its primary.
func (o *primaryOptions) findPrimaryOf(ctx context.Context, name string, kinds ...kind) (v1alpha1.Cluster, error) {
	c, err := o.findCluster(ctx, name, kinds...)
	if err != nil {
		return nil, err
	}
	var engines []string
	for _, k := range kinds {
		if kindOf(c).gvk == k.gvk {
			return c, nil
		}
		engines = append(engines, k.engine)
	}
	remedy := "its members take no such request"
	if kindOf(c).gvk == etcdKind().gvk {
		remedy = fmt.Sprintf("etcd moves its leader with kubectl holdfast etcdctl %s -- move-leader", flagHint(c))
	}
	return nil, fmt.Errorf("%s is no %s cluster: %s", nameOf(c), strings.Join(engines, " or "), remedy)
}

// request annotates the cluster with a new ID, and follows the request if it is to.
func (o *primaryOptions) request(cmd *cobra.Command, c v1alpha1.Cluster, annotation, target, text string) error {
	id := time.Now().UTC().Format("20060102T150405.000000Z")
	value := id
	if target != "" {
		value += "@" + target
	}
	if err := o.annotate(cmd.Context(), c, annotation, value); err != nil {
		return fmt.Errorf("annotate %s: %w", nameOf(c), err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", nameOf(c), text)
	if !o.wait {
		return nil
	}
	result, err := o.awaitResult(cmd.Context(), c, strings.TrimPrefix(annotation, v1alpha1.GroupVersion.Group+"/"), id)
	if err != nil {
		return fmt.Errorf("%s: %w", nameOf(c), err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", nameOf(c), result)
	return nil
}

// annotate sets one annotation of exactly the cluster that was read, or of the Database
// that declares it, which passes requests on.
func (s *session) annotate(ctx context.Context, c v1alpha1.Cluster, key, value string) error {
	declared := declaringObject(c)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": declared.GetUID(), "annotations": map[string]string{key: value},
	}})
	if err != nil {
		return err
	}
	return s.client.Patch(ctx, declared, client.RawPatch(types.MergePatchType, body), client.FieldOwner(FieldManager))
}

// awaitResult waits for the result of a request.
func (o *primaryOptions) awaitResult(ctx context.Context, c v1alpha1.Cluster, kind, id string) (string, error) {
	key := client.ObjectKeyFromObject(c)
	deadline, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for {
		if err := o.client.Get(ctx, key, c); err != nil {
			return "", fmt.Errorf("look at it again: %w; the request stays", err)
		}
		result, waits, err := judgeResult(c, kind, id)
		if result != "" || err != nil {
			return result, err
		}
		if !waitFor(deadline, waitInterval) {
			return "", fmt.Errorf("no result after %s: %s; the request stays, see status.requests", o.timeout, waits)
		}
	}
}

// judgeResult is the result of a request, or an error where it was not carried out. Both
// are empty while it has none, and waits says what for.
func judgeResult(c v1alpha1.Cluster, kind, id string) (result, waits string, err error) {
	requests := c.CommonStatus().Requests
	n := slices.IndexFunc(requests, func(r v1alpha1.RequestStatus) bool { return r.Type == kind && r.ID == id })
	switch {
	case n < 0 && c.GetDeletionTimestamp() != nil:
		return "", "", errors.New("it is being deleted")
	case n < 0 && c.Common().Suspend:
		return "", "", fmt.Errorf("it is suspended, and the request waits: kubectl holdfast resume %s", flagHint(c))
	case n < 0:
		return "", "the operator has not accepted the request yet", nil
	case requests[n].Result == "":
		return "", cmp.Or(requests[n].Target, "a member") + " is to lead", nil
	}
	for _, failure := range []string{"refused", "not needed", "not carried out", "used up"} {
		if strings.HasPrefix(requests[n].Result, failure) {
			return "", "", errors.New(requests[n].Result)
		}
	}
	return requests[n].Result, "", nil
}

func discardVolumeCommand(s *session) *cobra.Command {
	o := &primaryOptions{session: s}
	cmd := &cobra.Command{
		Use:               "discard-volume NAME POD",
		Short:             "Discard the volume of a replica of a PostgreSQL cluster; the member is copied again on a new one",
		Example:           `  kubectl holdfast discard-volume orders orders-1 --force --wait`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: s.completeNames(postgresKind()),
		RunE:              o.runDiscardVolume,
	}
	cmd.Flags().BoolVar(&o.force, "force", false, "accept that all data on the volume is deleted, and that its pod is removed from a node that does not answer")
	return o.addWait(cmd)
}

// runDiscardVolume requests it for exactly the claim that status shows now.
func (o *primaryOptions) runDiscardVolume(cmd *cobra.Command, args []string) error {
	c, err := o.findPrimaryOf(cmd.Context(), args[0], postgresKind())
	if err != nil {
		return err
	}
	pod, err := memberNamed(c, args[1])
	if err != nil {
		return err
	}
	members := c.CommonStatus().Members
	n := slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Name == pod })
	switch uid := members[n].VolumeUID; {
	case uid == "":
		return fmt.Errorf("%s: status shows no volume of %s: there is none, or the operator is of an earlier version", nameOf(c), pod)
	case c.CommonStatus().Primary == pod:
		return fmt.Errorf("%s: %s takes writes: its volume is not discarded", nameOf(c), pod)
	case !o.force:
		return fmt.Errorf("%s: all data on the volume of %s would be deleted, and its pod removed even if its node does not answer; if you accept that, repeat the command with --force", nameOf(c), pod)
	default:
		return o.request(cmd, c, v1alpha1.AnnotationDiscardVolume, uid, "is to discard the volume of "+pod)
	}
}
