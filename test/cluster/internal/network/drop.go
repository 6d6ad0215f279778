package network

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// Drop is traffic that does not arrive any more, established connections
// included. An empty side stands for every address.
type Drop struct {
	Sources, Destinations []string
	// SourcePorts and DestinationPorts are of TCP; none stands for all traffic.
	SourcePorts, DestinationPorts []uint
}

// dropName is what the rules of one fault are called, and found by when it ends.
var dropName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,60}$`)

// dropPriority is after the translation of Services' addresses: rules name the
// addresses of pods and of the API server itself.
const dropPriority = 10

// DropTraffic drops traffic that the node forwards, which is that of its pods. With
// own, it drops what the node's own programs send and receive, too: else its kubelet
// still reaches pods that are cut off. Drops of the same name are replaced.
func DropTraffic(n layout.Node, name string, own bool, drops ...Drop) error {
	rules, err := rulesOf(name, own, drops)
	if err != nil {
		return err
	}
	return applyRules(n, rules)
}

// PassTraffic ends the drops of that name; that there are none is fine.
func PassTraffic(n layout.Node, name string) error {
	if !dropName.MatchString(name) {
		return fmt.Errorf("%q is no name for dropped traffic", name)
	}
	return applyRules(n, clearRules(name))
}

// clearRules removes a table whether or not it is there: old versions of nft can
// only delete one that is.
func clearRules(name string) string {
	return fmt.Sprintf("add table ip drop_%[1]s\ndelete table ip drop_%[1]s\n", name)
}

// rulesOf drops is one transaction for nft, in a table of their own: kube-proxy
// writes its own table again at any time.
func rulesOf(name string, own bool, drops []Drop) (string, error) {
	if !dropName.MatchString(name) {
		return "", fmt.Errorf("%q is no name for dropped traffic", name)
	}
	var rules strings.Builder
	for _, d := range drops {
		sources, err := matchAddresses("saddr", d.Sources)
		if err != nil {
			return "", err
		}
		destinations, err := matchAddresses("daddr", d.Destinations)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&rules, "\t\t%s%s%s%sdrop\n", sources, destinations, matchPorts("sport", d.SourcePorts), matchPorts("dport", d.DestinationPorts))
	}
	hooks := []string{"forward"}
	if own {
		hooks = append(hooks, "input", "output")
	}
	var text strings.Builder
	text.WriteString(clearRules(name))
	fmt.Fprintf(&text, "table ip drop_%s {\n", name)
	for _, hook := range hooks {
		fmt.Fprintf(&text, "\tchain %s {\n\t\ttype filter hook %s priority %d;\n%s\t}\n", hook, hook, dropPriority, rules.String())
	}
	text.WriteString("}\n")
	return text.String(), nil
}

func matchAddresses(side string, addresses []string) (string, error) {
	for _, a := range addresses {
		_, errAddress := netip.ParseAddr(a)
		_, errPrefix := netip.ParsePrefix(a)
		if errAddress != nil && errPrefix != nil {
			return "", fmt.Errorf("%q is no address and no range of addresses", a)
		}
	}
	if len(addresses) == 0 {
		return "", nil
	}
	return fmt.Sprintf("ip %s { %s } ", side, strings.Join(addresses, ", ")), nil
}

func matchPorts(side string, ports []uint) string {
	if len(ports) == 0 {
		return ""
	}
	return fmt.Sprintf("tcp %s { %s } ", side, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ports)), ", "), "[]"))
}

func applyRules(n layout.Node, rules string) error {
	command := exec.Command("nsenter", "--net=/run/netns/"+n.NetnsName(), "nft", "-f", "-")
	command.Stdin = strings.NewReader(rules)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: nft: %w: %s", n.Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
