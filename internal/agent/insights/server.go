package insights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// ServeHTTP answers Insights as JSON.
func (a *Analyzer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.Report())
}

// ServeSocket answers programs of the same container, and user, until ctx ends.
func (a *Analyzer) ServeSocket(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a stale socket: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen for who asks for insights: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+agentapi.InsightsPath, a)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// answerLimit bounds what is read of an answer.
const answerLimit = 1 << 20

// NewCommand prints what the agent of this container has found. It stands under
// "agent", and kubectl holdfast insights runs it in a member's pod.
func NewCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use: "insights", Short: "Print what the agent of this container found in its database's text log, as JSON",
		Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printInsights(cmd.Context(), socket, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&socket, "socket", filepath.Join(agentapi.RunDir, agentapi.InsightsSocket), "where the agent listens")
	return cmd
}

func printInsights(ctx context.Context, socket string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+agentapi.InsightsPath, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the agent: %s", response.Status)
	}
	_, err = io.Copy(out, io.LimitReader(response.Body, answerLimit))
	return err
}
