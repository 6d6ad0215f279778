package agent

import (
	"net"
	"path/filepath"
	"testing"
)

// The socket of an agent that was killed is in no other's way.
func TestListenReplacesASocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	for range 2 {
		listener, err := listenAt(socket)
		if err != nil {
			t.Fatal(err)
		}
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = listener.Close() })
	}
}
