package settings

import (
	"testing"
)

func TestRenderSettingsKeepsAValueInItsQuotes(t *testing.T) {
	got := RenderSettings(map[string]string{"a": "it's\nfsync = off", "b": `back\slash'`})
	want := "a = 'it''s\\nfsync = off'\nb = 'back\\\\slash'''\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
