package notificationcontroller

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Event is what is read of a notification, as a generic provider passes it on.
type Event struct {
	InvolvedObject      struct{ APIVersion, Kind, Namespace, Name string }
	Severity, Reason    string
	Message             string
	ReportingController string
	Metadata            map[string]string
}

// Receiver keeps the notifications that it is sent.
type Receiver struct {
	mu     sync.Mutex
	events []Event
}

// readTimeout is for the header of a request.
const readTimeout = 10 * time.Second

// Listen takes notifications at an address until the test ends, and returns its URL.
func (r *Receiver) Listen(t *testing.T, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: readTimeout}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String() + "/"
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var e Event
	if err := json.NewDecoder(request.Body).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// List is what was sent, the oldest first.
func (r *Receiver) List() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}
