package terminal

import "os"

// notifyResizes signals nothing: Windows has no signal for it. A session keeps
// the size that its terminal had at first.
func notifyResizes() (resized <-chan os.Signal, done func()) {
	return nil, func() {}
}
