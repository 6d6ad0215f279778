package metricfamily

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// AppendTo answers with the metrics of a handler, and with those of collectors behind them.
func AppendTo(others http.Handler, collectors ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	own := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		request = request.Clone(request.Context())
		for _, name := range []string{"Accept", "Accept-Encoding"} { // the two are one text
			request.Header.Del(name)
		}
		first := &answered{ResponseWriter: w}
		others.ServeHTTP(first, request)
		if !first.failed {
			own.ServeHTTP(bodyOnly{w}, request)
		}
	})
}

// answered remembers whether a handler refused.
type answered struct {
	http.ResponseWriter
	failed bool
}

func (a *answered) WriteHeader(code int) {
	a.failed = code != http.StatusOK
	a.ResponseWriter.WriteHeader(code)
}

// bodyOnly writes no header: the handler before has.
type bodyOnly struct{ http.ResponseWriter }

func (bodyOnly) WriteHeader(int)     {}
func (bodyOnly) Header() http.Header { return http.Header{} }
