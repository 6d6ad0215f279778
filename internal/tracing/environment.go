package tracing

import (
	"fmt"
	"net/url"
	"strings"
)

// Variables that name the collector. The exporter would use its defaults where they make no
// sense. It reads those beside them, such as OTEL_EXPORTER_OTLP_HEADERS, by itself.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	disabledVariable       = "OTEL_SDK_DISABLED"
)

// protocol is the only one that the operator speaks.
const protocol = "http/protobuf"

// findEndpoint finds the URL that spans are posted to; empty for none. It fails for what the
// exporter would ignore. Errors do not repeat an address, which may have a token.
func findEndpoint(getenv func(string) string) (string, error) {
	variable, endpoint := findVariable(getenv, tracesEndpointVariable, endpointVariable)
	if endpoint == "" || strings.EqualFold(strings.TrimSpace(getenv(disabledVariable)), "true") {
		return "", nil
	}
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return "", fmt.Errorf("%s is no address of a collector: write a URL such as http://otel-collector.monitoring.svc.cluster.local:4318", variable)
	}
	if variable, value := findVariable(getenv, tracesProtocolVariable, protocolVariable); value != "" && value != protocol {
		return "", fmt.Errorf("%s=%s is not supported: write %s, and in %s the collector's port for it, which is 4318 by default", variable, value, protocol, endpointVariable)
	}
	switch {
	case variable == endpointVariable:
		at = at.JoinPath("v1/traces") // it is the base of the addresses of all signals
	case at.Path == "":
		at.Path = "/"
	}
	return at.String(), nil
}

// findVariable finds the first of the variables that is set.
func findVariable(getenv func(string) string, variables ...string) (name, value string) {
	for _, name := range variables {
		if value := strings.TrimSpace(getenv(name)); value != "" {
			return name, value
		}
	}
	return "", ""
}
