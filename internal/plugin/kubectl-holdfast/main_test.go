package main

import (
	"bytes"
	"strings"
	"testing"
)

// The program is the plugin under its own name, and completes verbs under
// another.
func TestCommandByName(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"/usr/bin/kubectl-holdfast --version", "kubectl holdfast version dev (go"},
		{`kubectl-holdfast.exe --version`, "kubectl holdfast version dev (go"},
		{"/usr/bin/kubectl_complete-holdfast swi", "switchover"},
	} {
		var out bytes.Buffer
		command := newCommand(strings.Fields(test.args))
		command.SetOut(&out)
		command.SetErr(&out)
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", test.args, err)
		}
		if !strings.Contains(out.String(), test.want) {
			t.Errorf("%s prints %q, which lacks %q", test.args, out.String(), test.want)
		}
	}
}
