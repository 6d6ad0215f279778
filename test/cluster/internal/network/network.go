// Package network builds three machines' worth of network on one: a bridge in
// the control plane's namespace, a cable from it to each node's namespace and
// one to the host. Nothing is forwarded off the bridge, so no packet of the
// cluster leaves the machine.
package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

const (
	bridge   = "hf-bridge"
	hostLink = "hf-host"
	hostPort = "hf-hostport"
)

// EnsureNetwork builds what is missing of the network and plugs every cable in.
func EnsureNetwork() error {
	if err := ensureControlPlane(); err != nil {
		return err
	}
	if err := ensureHostLeg(); err != nil {
		return err
	}
	for _, n := range layout.AllNodes() {
		if err := EnsureNode(n); err != nil {
			return err
		}
	}
	return nil
}

func ensureControlPlane() error {
	ns := layout.ControlPlaneNetns
	if !namespaceExists(ns) {
		if err := runCommand("ip", "netns", "add", ns); err != nil {
			return err
		}
	}
	if linkExists(ns, bridge) {
		return nil
	}
	steps := [][]string{
		{"ip", "-n", ns, "link", "set", "lo", "up"},
		{"ip", "-n", ns, "link", "add", bridge, "address", hardwareAddress(1), "type", "bridge"},
		{"ip", "-n", ns, "addr", "add", layout.ControlPlaneIP + "/24", "dev", bridge},
		{"ip", "-n", ns, "link", "set", bridge, "up"},
		setSysctl(ns, "net/ipv4/ip_forward", "0"),
	}
	for _, n := range layout.AllNodes() {
		steps = append(steps, []string{"ip", "-n", ns, "route", "replace", n.PodCIDR(), "via", n.IP()})
	}
	return runAll(steps)
}

// hardwareAddress is the MAC of 10.89.0.LAST. Left alone, a bridge takes the
// least of its ports' addresses, which changes when a node goes, and a node has
// another after each boot; until the others' caches notice, which takes half a
// minute, their packets go nowhere.
func hardwareAddress(last int) string { return fmt.Sprintf("02:00:0a:59:00:%02x", last) }

// ensureHostLeg gives the host an address on the bridge and routes to the
// pods. Service addresses and pods that are not there must fail at once rather
// than follow the host's default route.
func ensureHostLeg() error {
	ns := layout.ControlPlaneNetns
	steps := [][]string{}
	if !linkExists("", hostLink) {
		steps = append(steps,
			[]string{"ip", "link", "add", hostLink, "type", "veth", "peer", "name", hostPort, "netns", ns},
			[]string{"ip", "-n", ns, "link", "set", hostPort, "master", bridge, "up"},
			[]string{"ip", "addr", "add", layout.HostIP + "/24", "dev", hostLink},
			[]string{"ip", "link", "set", hostLink, "up"})
	}
	steps = append(steps,
		[]string{"ip", "route", "replace", "unreachable", layout.PodCIDR},
		[]string{"ip", "route", "replace", "unreachable", layout.ServiceCIDR})
	for _, n := range layout.AllNodes() {
		steps = append(steps, []string{"ip", "route", "replace", n.PodCIDR(), "via", n.IP(), "dev", hostLink})
	}
	return runAll(steps)
}

// EnsureNode builds the node's namespace and cable, and plugs it in.
func EnsureNode(n layout.Node) error {
	ns := n.NetnsName()
	if !namespaceExists(ns) {
		if err := runCommand("ip", "netns", "add", ns); err != nil {
			return err
		}
	}
	if !linkExists(ns, "eth0") {
		control := layout.ControlPlaneNetns
		steps := [][]string{
			{"ip", "-n", ns, "link", "set", "lo", "up"},
			{"ip", "-n", control, "link", "add", n.BridgePort(), "type", "veth",
				"peer", "name", "eth0", "address", hardwareAddress(10 + n.Index), "netns", ns},
			{"ip", "-n", control, "link", "set", n.BridgePort(), "master", bridge},
			{"ip", "-n", ns, "addr", "add", n.IP() + "/24", "dev", "eth0"},
			{"ip", "-n", ns, "link", "set", "eth0", "up"},
			{"ip", "-n", ns, "route", "replace", "default", "via", layout.ControlPlaneIP},
			setSysctl(ns, "net/ipv4/ip_forward", "1"),
			// Pods ask a service address that may lead back to themselves.
			setSysctl(ns, "net/ipv4/conf/all/rp_filter", "0"),
		}
		for _, other := range layout.AllNodes() {
			if other != n {
				steps = append(steps, []string{"ip", "-n", ns, "route", "replace", other.PodCIDR(), "via", other.IP()})
			}
		}
		if err := runAll(steps); err != nil {
			return err
		}
	}
	return PlugIn(n)
}

// PlugIn joins the node to the others again.
func PlugIn(n layout.Node) error {
	return runCommand("ip", "-n", layout.ControlPlaneNetns, "link", "set", n.BridgePort(), "up")
}

// UnplugNode cuts the node off from the others, the control plane and the host;
// what runs on it goes on.
func UnplugNode(n layout.Node) error {
	return runCommand("ip", "-n", layout.ControlPlaneNetns, "link", "set", n.BridgePort(), "down")
}

// PluggedIn says whether the node's cable is in.
func PluggedIn(n layout.Node) bool {
	out, err := exec.Command("ip", "-n", layout.ControlPlaneNetns, "-o", "link", "show", n.BridgePort(), "up").Output()
	return err == nil && len(out) > 0
}

// RemoveNode removes the node's namespace, and its cable with it.
func RemoveNode(n layout.Node) error {
	if linkExists(layout.ControlPlaneNetns, n.BridgePort()) {
		if err := runCommand("ip", "-n", layout.ControlPlaneNetns, "link", "del", n.BridgePort()); err != nil {
			return err
		}
	}
	return removeNamespace(n.NetnsName())
}

// RemoveNetwork removes all of it; what is not there is fine.
func RemoveNetwork() error {
	for _, n := range layout.AllNodes() {
		if err := RemoveNode(n); err != nil {
			return err
		}
	}
	if linkExists("", hostLink) {
		if err := runCommand("ip", "link", "del", hostLink); err != nil {
			return err
		}
	}
	for _, cidr := range []string{layout.PodCIDR, layout.ServiceCIDR} {
		// Fails only when there is no such route.
		_ = exec.Command("ip", "route", "del", "unreachable", cidr).Run()
	}
	return removeNamespace(layout.ControlPlaneNetns)
}

func removeNamespace(ns string) error {
	if !namespaceExists(ns) {
		return nil
	}
	return runCommand("ip", "netns", "del", ns)
}

func namespaceExists(ns string) bool {
	_, err := os.Stat("/run/netns/" + ns)
	return !errors.Is(err, fs.ErrNotExist)
}

func linkExists(ns, link string) bool {
	arguments := []string{"-o", "link", "show", "dev", link}
	if ns != "" {
		if !namespaceExists(ns) {
			return false
		}
		arguments = append([]string{"-n", ns}, arguments...)
	}
	return exec.Command("ip", arguments...).Run() == nil
}

// setSysctl writes by the shell: /proc/sys/net is that of the process reading
// it, and the sysctl program is not on every machine.
func setSysctl(ns, path, value string) []string {
	return []string{"nsenter", "--net=/run/netns/" + ns, "sh", "-c", "echo " + value + " > /proc/sys/" + path}
}

func runAll(steps [][]string) error {
	for _, step := range steps {
		if err := runCommand(step...); err != nil {
			return err
		}
	}
	return nil
}

func runCommand(command ...string) error {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
