// Package chromium knows how tests start Debian's Chromium.
package chromium

import (
	"os"

	"github.com/chromedp/chromedp"
)

// Options start the program of HOLDFAST_CHROMIUM, or Debian's, with its own data in
// directory. Chromium's services, which would reach for the network, are off.
func Options(directory string) []chromedp.ExecAllocatorOption {
	program := os.Getenv("HOLDFAST_CHROMIUM")
	if program == "" {
		program = "/usr/bin/chromium"
	}
	return append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(directory),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.WindowSize(1200, 900))
}
