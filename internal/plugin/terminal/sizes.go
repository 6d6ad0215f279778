// Package terminal follows the size of the terminal that a person sits at.
package terminal

import (
	"context"
	"os"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// Sizes reports how large a terminal is, at first and after each change.
type Sizes struct {
	sizes chan remotecommand.TerminalSize
	// Stop ends the reports.
	Stop context.CancelFunc
}

// Next implements remotecommand.TerminalSizeQueue.
func (t *Sizes) Next() *remotecommand.TerminalSize {
	size, more := <-t.sizes
	if !more {
		return nil
	}
	return &size
}

// FollowSize reports the size of a terminal until it is stopped or the context
// ends.
func FollowSize(ctx context.Context, terminal *os.File) *Sizes {
	ctx, stop := context.WithCancel(ctx)
	t := &Sizes{sizes: make(chan remotecommand.TerminalSize), Stop: stop}
	go func() {
		defer close(t.sizes)
		resized, done := notifyResizes()
		defer done()
		for {
			if width, height, err := term.GetSize(int(terminal.Fd())); err == nil {
				select {
				case t.sizes <- remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-resized:
			case <-ctx.Done():
				return
			}
		}
	}()
	return t
}
