// Command coredns is CoreDNS with no more plugins than a cluster of our own
// needs: names of services and pods, and the probes that say it is ready.
package main

import (
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// Only directives on this list are accepted in the Corefile, in this order of
// execution; CoreDNS brings a list of everything it could be built with.
func init() {
	dnsserver.Directives = []string{"health", "ready", "errors", "kubernetes"}
}

func main() { coremain.Run() }
