package main

import "testing"

// Profiles are served on request only: each client that reaches the port of metrics can read them.
func TestProfilesAreServedOnRequest(t *testing.T) {
	if flag := managerCommand().Flags().Lookup("profiling"); flag == nil || flag.DefValue != "false" {
		t.Errorf("the flag is %v, want one that is off by default", flag)
	}
	for _, requested := range []bool{false, true} {
		o := managerOptions{metricsAddress: ":8080", profiling: requested}
		server := o.metricsServer()
		if server.BindAddress != ":8080" {
			t.Errorf("metrics are served at %s", server.BindAddress)
		}
		if _, served := server.ExtraHandlers["/debug/pprof/"]; served != requested || !requested && len(server.ExtraHandlers) > 0 {
			t.Errorf("with --profiling=%t %d handlers are served beside metrics", requested, len(server.ExtraHandlers))
		}
	}
}
