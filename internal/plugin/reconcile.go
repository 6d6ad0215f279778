package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// waitInterval is how often --wait checks.
const waitInterval = 500 * time.Millisecond

type reconcileOptions struct {
	*session
	wait    bool
	timeout time.Duration
}

func reconcileCommand(s *session) *cobra.Command {
	o := &reconcileOptions{session: s}
	cmd := &cobra.Command{
		Use:   "reconcile NAME",
		Short: "Ask the operator to look at a cluster now; --wait until it is as declared",
		Args:  exactlyOne,
		RunE:  o.runReconcile,
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait until the cluster is rolled out and serves")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long --wait waits")
	return cmd
}

func (o *reconcileOptions) runReconcile(cmd *cobra.Command, args []string) error {
	c, err := o.findCluster(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	requestID := time.Now().UTC().Format(time.RFC3339Nano)
	if err := o.annotate(cmd.Context(), c, meta.ReconcileRequestAnnotation, requestID); err != nil {
		return fmt.Errorf("ask for a reconciliation of %s: %w", nameOf(c), err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is to be reconciled\n", nameOf(c))
	if !o.wait {
		return nil
	}
	if err := o.awaitRequest(cmd.Context(), c, requestID); err != nil {
		return fmt.Errorf("%s: %w", nameOf(c), err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is as declared: %s\n", nameOf(c), findCondition(c.CommonStatus().Conditions, v1alpha1.ConditionReady).Message)
	return nil
}

// awaitRequest waits until the request was handled and kstatus says Current.
func (o *reconcileOptions) awaitRequest(ctx context.Context, c v1alpha1.Cluster, requestID string) error {
	key, k := client.ObjectKeyFromObject(c), kindOf(c)
	deadline, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for {
		if err := o.client.Get(ctx, key, c); err != nil {
			return fmt.Errorf("look at it again: %w", err)
		}
		c.GetObjectKind().SetGroupVersionKind(k.gvk)
		done, why := judgeRequest(c, requestID)
		if done {
			return why
		}
		if !waitFor(deadline, waitInterval) {
			return fmt.Errorf("not as declared after %s: %w", o.timeout, why)
		}
	}
}

// judgeRequest says whether there is nothing left to wait for, and what is wrong.
func judgeRequest(c v1alpha1.Cluster, requestID string) (done bool, why error) {
	st := c.CommonStatus()
	if st.LastHandledReconcileAt != requestID {
		if c.GetDeletionTimestamp() != nil {
			return true, errors.New("it is being deleted")
		}
		return false, errors.New("the operator has not handled the request: see whether it runs (kubectl get deployment -A -l app.kubernetes.io/name=holdfast)")
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return true, err
	}
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil {
		return true, fmt.Errorf("judge its status: %w", err)
	}
	switch result.Status {
	case status.CurrentStatus:
		return true, nil
	case status.FailedStatus:
		stalled := findCondition(st.Conditions, v1alpha1.ConditionStalled)
		return true, fmt.Errorf("stalled, %s: %s", stalled.Reason, stalled.Message)
	case status.TerminatingStatus:
		return true, errors.New("it is being deleted")
	}
	ready := findCondition(st.Conditions, v1alpha1.ConditionReady)
	if c.Common().Suspend {
		return true, fmt.Errorf("%s: %s", ready.Reason, ready.Message)
	}
	return false, fmt.Errorf("%s: %s", orDash(ready.Reason), orDash(ready.Message))
}
