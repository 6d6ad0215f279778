//go:build !windows

package terminal

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyResizes signals that the terminal has another size.
func notifyResizes() (resized <-chan os.Signal, done func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c, func() { signal.Stop(c) }
}
