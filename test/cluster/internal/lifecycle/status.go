package lifecycle

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/holdfast-db/holdfast/test/cluster/internal/controlplane"
	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
	"github.com/holdfast-db/holdfast/test/cluster/internal/network"
	"github.com/holdfast-db/holdfast/test/cluster/internal/node"
	"github.com/holdfast-db/holdfast/test/cluster/internal/process"
)

// WriteStatus writes what runs, and in how much memory: the nodes' own
// programs apart from their pods.
func WriteStatus(ctx context.Context, dir layout.Dir, out io.Writer) error {
	if err := CheckHealth(ctx, dir); err != nil {
		fmt.Fprintln(out, "not healthy:", err)
	} else {
		fmt.Fprintln(out, "healthy")
	}
	if minor, err := readVersion(dir); err == nil && minor != "" {
		fmt.Fprintln(out, "Kubernetes", minor)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PART\tNETWORK\tMISSING\tPROCESSES\tMEMORY")
	line := func(part, network string, missing int, cgroup string) {
		bytes, _ := process.MemoryBytes(cgroup) // none when it does not run
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d MiB\n", part, network, missing, len(process.ListMembers(cgroup)), bytes>>20)
	}
	line("control plane", "", len(controlplane.MissingPrograms(dir)), layout.ControlPlaneCgroup())
	for _, n := range layout.AllNodes() {
		state := "cut off"
		if network.PluggedIn(n) {
			state = "up"
		}
		line(n.Name, state, len(node.MissingPrograms(dir, n)), n.CgroupPath()+"/system")
		line(n.Name+" pods", "", 0, n.CgroupPath()+"/kubepods")
	}
	line("all", "", 0, layout.CgroupRoot)
	return w.Flush()
}
