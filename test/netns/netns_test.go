//go:build linux

package netns

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newNamespace is a network namespace in which only its loopback is up, and a server
// that listens there.
func newNamespace(t *testing.T) (*Namespace, net.Listener) {
	t.Helper()
	type made struct {
		ns       *Namespace
		listener net.Listener
		err      error
	}
	result := make(chan made, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- made{err: err}
			return
		}
		ns, err := Open("/proc/thread-self/ns/net")
		if err == nil {
			err = raiseLoopback()
		}
		if err != nil {
			result <- made{err: err}
			return
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		result <- made{ns, listener, err}
	}()
	m := <-result
	if errors.Is(m.err, os.ErrPermission) {
		t.Skip("needs the right to make network namespaces")
	}
	if m.err != nil {
		t.Fatal(m.err)
	}
	t.Cleanup(func() {
		_ = m.listener.Close()
		_ = m.ns.Close()
	})
	return m.ns, m.listener
}

func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// TestDialsFromTheNamespaceOnly: the server is found in its namespace, at the same
// time as it is not found in this one.
func TestDialsFromTheNamespaceOnly(t *testing.T) {
	ns, listener := newNamespace(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			conn, err := ns.DialContext(ctx, "tcp", listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.Close()
		})
		wait.Go(func() {
			if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String()); err == nil {
				_ = conn.Close()
				t.Error("the server is found in this namespace, too")
			}
		})
	}
	wait.Wait()
}

func TestNamesAreRefused(t *testing.T) {
	ns, err := Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	if _, err := ns.DialContext(t.Context(), "tcp", "localhost:1"); err == nil {
		t.Error("a name is dialled")
	}
}
