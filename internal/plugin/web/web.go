// Package web serves pages to one browser on this machine: it knows who may ask
// (Guard) and what the pages are made of (Assets), and nothing of clusters.
package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

//go:embed assets
var embedded embed.FS

// Assets are the pages' files, with index.html at the top.
func Assets() fs.FS {
	sub, err := fs.Sub(embedded, "assets")
	if err != nil {
		panic(err) // the directory is embedded
	}
	return sub
}

// Endpoint answers a request for data. What it returns is sent as JSON.
type Endpoint func(ctx context.Context, query url.Values) (any, error)

// Handler serves the pages, and each endpoint below /api/ by its name.
func Handler(endpoints map[string]Endpoint) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(Assets()))
	for name, endpoint := range endpoints {
		mux.HandleFunc("/api/"+name, func(w http.ResponseWriter, r *http.Request) { answer(w, r, endpoint) })
	}
	return mux
}

// answer sends what the endpoint returns, or {"error": text}.
func answer(w http.ResponseWriter, r *http.Request, endpoint Endpoint) {
	status := http.StatusOK
	value, err := endpoint(r.Context(), r.URL.Query())
	if err != nil {
		status, value = statusOf(err), map[string]string{"error": err.Error()}
	}
	data, err := json.Marshal(value)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // a browser that left does not matter
}

// statusOf passes the API server's status on. Other errors are of the way there.
func statusOf(err error) int {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		if code := int(api.Status().Code); code >= http.StatusBadRequest {
			return code
		}
	}
	return http.StatusBadGateway
}
