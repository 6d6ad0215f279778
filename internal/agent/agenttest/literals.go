package agenttest

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// ReadMetrics reads what an agent answers to a scrape.
func ReadMetrics(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", response.Status, err)
	}
	return string(text)
}

// RequireNoLiteral wants none of the literals in what an agent answers: its metrics, its
// insights and its status.
func RequireNoLiteral(t *testing.T, metrics string, insights, status any, literals ...string) {
	t.Helper()
	answers := map[string]string{"/metrics": metrics}
	for name, value := range map[string]any{"insights": insights, "status": status} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		answers[name] = string(text)
	}
	for name, text := range answers {
		if text == "" {
			t.Errorf("%s is empty", name)
		}
		for _, literal := range literals {
			at := strings.Index(text, literal)
			if at >= 0 {
				t.Errorf("%s has a literal: %s", name, text[max(0, at-200):min(len(text), at+200)])
			}
		}
	}
}
