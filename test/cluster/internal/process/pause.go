package process

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// Pause has a program stand still. Connections to it stay open, and nothing answers.
func Pause(dir layout.Dir, name string) error { return signalProgram(dir, name, syscall.SIGSTOP) }

// Resume has a program that stands still go on.
func Resume(dir layout.Dir, name string) error { return signalProgram(dir, name, syscall.SIGCONT) }

// signalProgram signals the process that was started, and no later one of its id.
func signalProgram(dir layout.Dir, name string, signal syscall.Signal) error {
	if !IsRunning(dir, name) {
		return fmt.Errorf("%s does not run", name)
	}
	content, err := os.ReadFile(recordPath(dir, name))
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return err
	}
	return syscall.Kill(r.PID, signal)
}
