// Command render writes the dashboards of Grafana into config/dashboards.
//
//	cd test && go run ./dashboards/render ..
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-db/holdfast/test/dashboards"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: render <root of the tree>")
		os.Exit(2)
	}
	if err := dashboards.WriteFiles(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}
