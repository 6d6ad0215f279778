package wal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// Exit codes that PostgreSQL distinguishes.
const (
	// exitMissing: an archive_command failed; a restore_command found nothing.
	exitMissing = 1
	// exitFatal, as any above 125, ends an archiver until it is started again,
	// and a recovery for good.
	exitFatal = 200
)

// Exit is an error with the exit code of the program.
type Exit struct {
	Code int
	Err  error
}

func (e *Exit) Error() string { return e.Err.Error() }

// Unwrap makes the error itself known.
func (e *Exit) Unwrap() error { return e.Err }

// NewCommand makes the programs that PostgreSQL calls.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "wal", Short: "Archive or restore a file of PostgreSQL's log: what the database calls", Hidden: true}
	cmd.AddCommand(archiveCommand(), restoreCommand())
	return cmd
}

func archiveCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use: "archive FILE", Short: "Have the agent archive a file of this name", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := AskAgent(cmd.Context(), socket, args[0])
			switch {
			case errors.Is(err, ErrStopping):
				return &Exit{exitFatal, err} // without the tries and pauses that a shutdown would wait for
			case err != nil:
				return &Exit{exitMissing, fmt.Errorf("archive %s: %w", args[0], err)}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", agentapi.RunDir+"/"+agentapi.ArchiveSocket, "where the agent listens")
	return cmd
}

func restoreCommand() *cobra.Command {
	var from, keys, scratch, socket string
	cmd := &cobra.Command{
		Use: "restore FILE PATH", Short: "Fetch a file from the archive", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := func() error {
				if socket != "" {
					return AskAgent(cmd.Context(), socket, args[0]+" "+args[1])
				}
				a, err := openFrom(cmd, from, keys)
				if err != nil {
					return err
				}
				return errors.Join(a.FetchFile(cmd.Context(), args[0], args[1], scratch), a.Close())
			}()
			switch {
			case errors.Is(err, ErrMissing):
				return &Exit{exitMissing, fmt.Errorf("restore %s: %w", args[0], err)}
			case err != nil:
				return &Exit{exitFatal, fmt.Errorf("restore %s: %w", args[0], err)}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", agentapi.RunDir+"/archive.json", "file that says where the archive is")
	f.StringVar(&keys, "keys", agentapi.StoreDir, "directory with the credentials of the store")
	f.StringVar(&socket, "socket", "", "where another process fetches it; the other flags are that process's then")
	f.StringVar(&scratch, "scratch", agentapi.RunDir+"/wal", "directory for files that will be asked for next")
	return cmd
}

func openFrom(cmd *cobra.Command, from, keys string) (*Archive, error) {
	data, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	var at agentapi.ArchiveConfig
	if err := json.Unmarshal(data, &at); err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	secret, err := store.ReadSecret(keys)
	if err != nil {
		return nil, err
	}
	return Open(cmd.Context(), at.Store, at.Prefix, secret)
}
