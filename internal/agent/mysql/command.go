package mysql

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/agent"
)

// NewCommand runs the agent in its pod. It stands under "agent".
func NewCommand(version string) *cobra.Command {
	return agent.NewCommand("mysql", "Run MySQL as a member of a cluster", version, func(ctx context.Context, pod agent.Pod) error {
		o, err := optionsIn(pod)
		if err != nil {
			return err
		}
		return Run(ctx, o)
	})
}
