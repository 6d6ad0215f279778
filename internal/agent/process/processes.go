package process

import "os/exec"

// Processes starts commands. Those whose parents have ended are the guard's to
// collect: see Guard.
type Processes struct{}

// NewProcesses starts commands.
func NewProcesses() *Processes { return &Processes{} }

// Start starts a command and returns a function that waits for its end. The
// wait must be called.
func (*Processes) Start(cmd *exec.Cmd) (wait func() error, err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd.Wait, nil
}
