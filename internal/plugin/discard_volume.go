package plugin

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

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
	c, err := o.findPostgres(cmd.Context(), args[0])
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
