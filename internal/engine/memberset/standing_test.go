package memberset

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/memberapi"
)

func TestSpoken(t *testing.T) {
	for state, want := range map[memberapi.State]string{
		memberapi.StateCatchingUp: "catching up", memberapi.StateStreaming: "streaming",
	} {
		if got := spoken(state); got != want {
			t.Errorf("%s is spoken as %q, want %q", state, got, want)
		}
	}
}
