// Command kubernetes is every Kubernetes program of the test cluster in one
// binary: it runs as the component whose name it is called by, so a folder of
// symlinks to it is a complete set of Kubernetes binaries. One link of shared
// code takes a fifth of the disk and of the build time of seven programs.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlcmd "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components are the commands that cobra runs. etcd and kubectl are not among
// them: both read os.Args themselves.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	switch command, found := components[name]; {
	case name == "etcd":
		etcdmain.Main(os.Args)
	case name == "kubectl":
		os.Exit(runKubectl())
	case found:
		os.Exit(cli.Run(command()))
	default:
		fmt.Fprintf(os.Stderr, "call this binary as one of etcd, kubectl, %s\n", strings.Join(names(), ", "))
		os.Exit(2)
	}
}

func runKubectl() int {
	command := kubectl.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		kubectlcmd.CheckErr(err)
	}
	return 0
}

func names() []string {
	var all []string
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
