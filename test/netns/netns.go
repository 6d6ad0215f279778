//go:build linux

// Package netns opens connections from another network namespace of this machine: a
// test is a client on a node of the local cluster, or in a member's pod, without a
// process there.
package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is an open network namespace: it stays while its pod's processes end.
type Namespace struct{ file *os.File }

// Open a namespace by a path such as /run/netns/NAME or /proc/PID/ns/net.
func Open(path string) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &Namespace{file}, nil
}

// Close it; connections stay.
func (n *Namespace) Close() error { return n.file.Close() }

// dialed is a connection, or why there is none.
type dialed struct {
	conn net.Conn
	err  error
}

// DialContext connects from the namespace to an IP address with a port. Names are not
// accepted: they would be asked for in this process's own namespace.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) == nil {
		return nil, fmt.Errorf("%q is no IP address", host)
	}
	result := make(chan dialed, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and no other one runs in
		// that namespace.
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- dialed{nil, fmt.Errorf("enter %s: %w", n.file.Name(), err)}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		result <- dialed{conn, err}
	}()
	d := <-result
	return d.conn, d.err
}
