package postgres

import "net/http"

func (a *agent) metricsHandler() http.Handler { return http.NotFoundHandler() }
