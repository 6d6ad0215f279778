package plugin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/plugin/gitops"
)

func suspendCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "suspend NAME",
		Short: "Stop every write of the operator for a cluster; it goes on reporting, the database goes on serving",
		Args:  exactlyOne,
		RunE:  func(cmd *cobra.Command, args []string) error { return s.setSuspend(cmd, args[0], true) },
	}
}

func resumeCommand(s *session) *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME",
		Short: "Let the operator work on a cluster again",
		Args:  exactlyOne,
		RunE:  func(cmd *cobra.Command, args []string) error { return s.setSuspend(cmd, args[0], false) },
	}
}

func (s *session) setSuspend(cmd *cobra.Command, name string, want bool) error {
	c, err := s.findCluster(cmd.Context(), name)
	if err != nil {
		return err
	}
	done, verb := "resumed", "resume"
	if want {
		done, verb = "suspended", "suspend"
	}
	if c.Common().Suspend == want {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is %s already\n", nameOf(c), done)
		return nil
	}
	declared := declaringObject(c)
	if declared != client.Object(c) {
		if err := s.client.Get(cmd.Context(), client.ObjectKeyFromObject(declared), declared); err != nil {
			return fmt.Errorf("read Database %s: %w", declared.GetName(), err)
		}
		declared.GetObjectKind().SetGroupVersionKind(databaseGVK)
	}
	tool := gitops.FindTool(declared)
	if want {
		_, err = s.applySuspend(cmd.Context(), declared, new(true))
	} else {
		err = s.releaseSuspend(cmd.Context(), declared)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, nameOf(c), err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", nameOf(c), done)
	if tool != nil {
		text := fmt.Sprintf("warning: %s applies this cluster and may undo this at its next run: set spec.suspend: %t there", tool, want)
		if tool.Pause != "" {
			text += ", or pause it with " + tool.Pause
		}
		fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
	return nil
}

// releaseSuspend gives the field up where only the plugin holds it, so that the spec
// is again what was declared, and sets it to false where another manager holds it.
func (s *session) releaseSuspend(ctx context.Context, declared client.Object) error {
	if suspended, err := s.applySuspend(ctx, declared, nil); err != nil || !suspended {
		return err
	}
	_, err := s.applySuspend(ctx, declared, new(false))
	return err
}

// applySuspend applies nothing but spec.suspend, of a cluster or of its Database, and
// reads from the answer whether it is suspended.
func (s *session) applySuspend(ctx context.Context, declared client.Object, want *bool) (bool, error) {
	spec := map[string]any{}
	if want != nil {
		spec["suspend"] = *want
	}
	gvk := declared.GetObjectKind().GroupVersionKind()
	body, err := json.Marshal(map[string]any{
		"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind,
		"metadata": map[string]any{"namespace": declared.GetNamespace(), "name": declared.GetName(), "uid": declared.GetUID()},
		"spec":     spec,
	})
	if err != nil {
		return false, err
	}
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(gvk)
	answer.SetNamespace(declared.GetNamespace())
	answer.SetName(declared.GetName())
	err = s.client.Patch(ctx, answer, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(FieldManager), client.ForceOwnership)
	if err != nil {
		return false, err
	}
	suspended, _, err := unstructured.NestedBool(answer.Object, "spec", "suspend")
	return suspended, err
}
