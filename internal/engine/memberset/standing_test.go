package memberset

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func TestSpoken(t *testing.T) {
	for state, want := range map[agentapi.State]string{
		agentapi.StateCatchingUp: "catching up", agentapi.StateStreaming: "streaming",
	} {
		if got := spellState(state); got != want {
			t.Errorf("%s is spoken as %q, want %q", state, got, want)
		}
	}
}
