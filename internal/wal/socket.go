package wal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Answers of the process that archives.
const (
	answerStored   = "stored"
	answerStopping = "stopping"
	answerMissing  = "missing"
	answerRefused  = "refused "
)

// ErrStopping says that the database is about to stop: what is not archived now
// is when it runs again.
var ErrStopping = errors.New("the database is being stopped, and archives later")

// AskAgent has the process that listens at a socket archive a file, or fetch one, and returns
// when that is done.
func AskAgent(ctx context.Context, socket, name string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("reach the agent: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := fmt.Fprintln(conn, name); err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the agent has gone: %w", err)
	}
	switch answer = strings.TrimSuffix(answer, "\n"); answer {
	case answerStored:
		return nil
	case answerStopping:
		return ErrStopping
	case answerMissing:
		return ErrMissing
	default:
		return errors.New(strings.TrimPrefix(answer, answerRefused))
	}
}

// ServeSocket answers the callers of a listener until ctx ends. A caller that has
// gone is taken to ask no more.
func ServeSocket(ctx context.Context, listener net.Listener, archive func(ctx context.Context, asked string) error) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go serveOne(ctx, conn, archive)
	}
}

func serveOne(ctx context.Context, conn net.Conn, archive func(context.Context, string) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = conn.Close() }()
	lines := bufio.NewReaderSize(conn, 256)
	name, err := lines.ReadString('\n')
	if err != nil {
		return
	}
	go func() {
		_, _ = lines.ReadByte() // which comes when the caller goes
		cancel()
	}()
	answer := answerStored
	switch err := archive(ctx, strings.TrimSuffix(name, "\n")); {
	case errors.Is(err, ErrStopping):
		answer = answerStopping
	case errors.Is(err, ErrMissing):
		answer = answerMissing
	case err != nil:
		answer = answerRefused + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	_, _ = fmt.Fprintln(conn, answer)
}
