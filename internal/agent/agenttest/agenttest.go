// Package agenttest is what the tests of the agent's packages share.
package agenttest

import (
	"os/exec"
	"testing"
	"time"
)

// WaitUntil waits until done returns true, and fails the test when it never does.
func WaitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came true")
		}
	}
}

// KillProcess kills the process whose ID stands in a file.
func KillProcess(t *testing.T, file string) {
	t.Helper()
	if err := exec.Command("sh", "-c", "kill -9 $(cat "+file+")").Run(); err != nil {
		t.Fatal(err)
	}
}
