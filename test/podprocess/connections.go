package podprocess

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// established is the state of a connection in /proc/PID/net/tcp.
const established = "01"

// Connections are the pod's own ports of its established TCP connections to an IPv4
// address, in order.
func Connections(proc, podUID string, remote netip.AddrPort) ([]uint16, error) {
	all, err := List(proc, podUID)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("pod %s has no process here: %w", podUID, ErrNotFound)
	}
	path := filepath.Join(proc, strconv.Itoa(all[0].PID), "net", "tcp")
	table, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var ports []uint16
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != established {
			continue // the heading, or a connection in another state
		}
		own, errOwn := parseAddress(fields[1])
		other, errOther := parseAddress(fields[2])
		if errOwn != nil || errOther != nil {
			return nil, fmt.Errorf("%s has the line %q", path, strings.TrimSpace(line))
		}
		if other == remote {
			ports = append(ports, own.Port())
		}
	}
	slices.Sort(ports)
	return ports, nil
}

// parseAddress reads an address as the kernel writes it: four bytes, the last one
// first, and a port.
func parseAddress(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	n, errPort := strconv.ParseUint(port, 16, 16)
	b, err := hex.DecodeString(address)
	if err != nil || errPort != nil || len(b) != 4 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], binary.LittleEndian.Uint32(b))
	return netip.AddrPortFrom(netip.AddrFrom4(ip), uint16(n)), nil
}
