package agent

import (
	"log/slog"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func TestConfigSource(t *testing.T) {
	c := NewConfigSource(testMember, "", slog.New(slog.DiscardHandler))
	take := func(text string, live bool) *Config {
		c.takeConfig([]byte(text), live)
		current, _ := c.Current()
		return current
	}
	if take(`{"namespace":"shop","name":"other"}`, false) != nil {
		t.Error("another cluster's configuration was taken")
	}
	if take(`{`, true) != nil {
		t.Error("half a configuration was taken")
	}
	file := `{"namespace":"shop","name":"orders","database":"a"}`
	if got := take(file, false); got == nil || got.Hash != agentapi.HashConfig([]byte(file)) {
		t.Fatalf("the file was not taken: %+v", got)
	}
	if got := take(file, false); got.Live {
		t.Error("the file counts as the API server's")
	}
	_, changed := c.Current()
	if got := take(file, true); !got.Live {
		t.Error("the same from the API server counts as the file's")
	}
	select {
	case <-changed:
	default:
		t.Error("that it is the API server's was not announced")
	}
	live := `{"namespace":"shop","name":"orders","database":"b"}`
	if got := take(live, true); got.Database != "b" {
		t.Errorf("the API server's was not taken: %+v", got)
	}
	if got := take(file, false); got.Database != "b" {
		t.Error("an old file replaced the API server's")
	}
}
