package podprocess

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The table as a machine of x86 shows it: 10.244.1.5 with two connections to
// 10.96.0.1:443, one to another port and one that is being opened.
const tcpTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 1 1 0 100 0 0 10 0
   1: 0501F40A:9C42 0100600A:01BB 01 00000000:00000000 02:00000000 00000000   999        0 2 2 0 20 4 30 10 -1
   2: 0501F40A:9C41 0100600A:01BB 01 00000000:00000000 02:00000000 00000000   999        0 3 2 0 20 4 30 10 -1
   3: 0501F40A:9C43 0100600A:1538 01 00000000:00000000 02:00000000 00000000   999        0 4 2 0 20 4 30 10 -1
   4: 0501F40A:9C44 0100600A:01BB 02 00000000:00000000 02:00000000 00000000   999        0 5 2 0 20 4 30 10 -1
`

func writeTable(t *testing.T, proc, table string) {
	t.Helper()
	path := filepath.Join(proc, "100", "net", "tcp")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestConnections(t *testing.T) {
	proc := memberProc(t)
	writeTable(t, proc, tcpTable)
	ports, err := Connections(proc, podUID, netip.MustParseAddrPort("10.96.0.1:443"))
	if diff := cmp.Diff([]uint16{40001, 40002}, ports); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if ports, err := Connections(proc, podUID, netip.MustParseAddrPort("10.96.0.2:443")); err != nil || len(ports) != 0 {
		t.Errorf("another address has %v, %v", ports, err)
	}
	if _, err := Connections(proc, "00000000-0000", netip.MustParseAddrPort("10.96.0.1:443")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a pod that is elsewhere: %v", err)
	}
	writeTable(t, proc, "   1: 0501F40A:9C42 strange 01\n")
	if ports, err := Connections(proc, podUID, netip.MustParseAddrPort("10.96.0.1:443")); err == nil {
		t.Errorf("a line that cannot be read is accepted: %v", ports)
	}
}

// TestConnectionsOfTheKernel: the form of the addresses is this machine's own.
func TestConnectionsOfTheKernel(t *testing.T) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	table, err := os.ReadFile(filepath.Join(Proc, strconv.Itoa(os.Getpid()), "net", "tcp"))
	if err != nil {
		t.Fatal(err)
	}
	proc := memberProc(t)
	writeTable(t, proc, string(table))
	ports, err := Connections(proc, podUID, netip.MustParseAddrPort(listener.Addr().String()))
	own := netip.MustParseAddrPort(conn.LocalAddr().String()).Port()
	if diff := cmp.Diff([]uint16{own}, ports); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}
