package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// InstallCommand copies the running binary to where the database's container
// finds it. It stands under "agent" and runs in an init container.
func InstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install DESTINATION",
		Short: "Copy this binary to DESTINATION, for a container of another image",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the running binary: %w", err)
			}
			return installBinary(self, args[0])
		},
	}
}

// installBinary writes beside the destination and renames, so that a restart of the
// init container never leaves half a binary, nor meets one that is executed.
func installBinary(source, destination string) error {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(filepath.Dir(destination), ".install-*")
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	defer func() { _ = os.Remove(out.Name()) }()
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(out.Name(), destination)
	}
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return nil
}
