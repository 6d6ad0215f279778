package startup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	refused = &url.Error{Op: "Get", URL: "https://10.0.0.1:443", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	pods    = schema.GroupResource{Resource: "pods"}
)

func TestReasonToWait(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no error":                            {nil, ""},
		"nothing listens":                     {refused, "cannot be reached"},
		"a connection that hangs":             {fmt.Errorf("list: %w", context.DeadlineExceeded), "cannot be reached"},
		"a name that is not resolved":         {&url.Error{Op: "Get", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, "cannot be reached"},
		"the store does not answer it":        {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), "answers with an error of its own"},
		"it is overloaded":                    {apierrors.NewTooManyRequests("later", 1), "answers with an error of its own"},
		"it is not ready":                     {apierrors.NewServiceUnavailable("starting"), "answers with an error of its own"},
		"it does not know service accounts":   {apierrors.NewUnauthorized("unknown"), "does not accept the operator's credentials"},
		"it refuses":                          {apierrors.NewForbidden(pods, "holdfast", errors.New("no role")), ""},
		"it has no such object":               {apierrors.NewNotFound(pods, "holdfast"), ""},
		"it has no such kind":                 {&meta.NoKindMatchError{}, ""},
		"another server has its address":      {&url.Error{Err: &tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "kubernetes"}}}, ""},
		"its certificate has another signer":  {&url.Error{Err: x509.UnknownAuthorityError{}}, ""},
		"what has nothing to do with it":      {fmt.Errorf("read the image: %w", &Permanent{errors.New("POD_NAME is not set")}), ""},
		"a discovery that found nothing else": {fmt.Errorf("discover: %w", refused), "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			if reason := ReasonToWait(test.err); reason != test.want {
				t.Errorf("reason %q, want %q", reason, test.want)
			}
		})
	}
}

// waitFor waits with the answers, one for each attempt, of which the last is
// repeated. It returns the lines that were logged and when each attempt was made.
func waitFor(ctx context.Context, answers ...error) (lines []string, attempts []time.Duration, err error) {
	began := time.Now()
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	err = Wait{Log: log, Ask: func(context.Context) error {
		attempts = append(attempts, time.Since(began))
		return answers[min(len(attempts), len(answers))-1]
	}}.ForAnswer(ctx)
	return lines, attempts, err
}

// An operator outlives an outage, and each state of it is logged once.
func TestWaitLogsEachStateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unavailable := apierrors.NewServiceUnavailable("starting")
		lines, attempts, err := waitFor(t.Context(), refused, refused, refused, unavailable, unavailable, refused, nil)
		if err != nil || len(attempts) != 7 {
			t.Fatalf("%d attempts ended with %v", len(attempts), err)
		}
		if len(lines) != 4 || !strings.Contains(lines[0], "cannot be reached") || !strings.Contains(lines[1], "error of its own") ||
			!strings.Contains(lines[2], "cannot be reached") || !strings.Contains(lines[3], "the API server answers") {
			t.Errorf("logged:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// The pauses grow to 15 s, with up to a fifth more, and no further.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{refused, refused, refused, refused, refused, refused, refused, refused, nil}
		_, attempts, err := waitFor(t.Context(), answers...)
		if err != nil || len(attempts) != len(answers) {
			t.Fatalf("%d attempts ended with %v", len(attempts), err)
		}
		for i, shortest := range []time.Duration{1, 2, 4, 8, 15, 15, 15, 15} {
			pause := attempts[i+1] - attempts[i]
			if shortest *= time.Second; pause < shortest || pause > shortest*6/5 {
				t.Errorf("pause %d is %s, want %s and up to a fifth more", i, pause, shortest)
			}
		}
	})
}

// What waiting does not change ends the operator, also after an outage.
func TestPermanentErrorsEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(pods, "holdfast", errors.New("no role"))
		if lines, attempts, err := waitFor(t.Context(), forbidden); !errors.Is(err, forbidden) || len(attempts) != 1 || len(lines) != 0 {
			t.Errorf("%d attempts ended with %v, logged %q", len(attempts), err, lines)
		}
		lines, attempts, err := waitFor(t.Context(), refused, forbidden)
		if !errors.Is(err, forbidden) || len(attempts) != 2 || len(lines) != 1 {
			t.Errorf("after an outage %d attempts ended with %v, logged %q", len(attempts), err, lines)
		}
	})
}

// An operator that is stopped while it waits ends at once, and says what it waited for.
func TestStopEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		_, _, err := waitFor(ctx, refused)
		if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "cannot be reached") {
			t.Errorf("error %v", err)
		}
		if waited := time.Since(began); waited != 20*time.Second {
			t.Errorf("it ended after %s", waited)
		}
	})
}

// A request that hangs is an attempt that failed.
func TestAttemptThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		err := Wait{Log: logr.Discard(), Ask: func(ctx context.Context) error {
			if attempts++; attempts == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}.ForAnswer(t.Context())
		if err != nil || attempts != 2 {
			t.Errorf("%d attempts ended with %v", attempts, err)
		}
	})
}

// The kubelet leaves an operator that waits alone, and sends it no traffic. Its
// health address is free for the manager afterwards.
func TestProbesWhileWaiting(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	attempts := 0
	var alive, ready int
	err = Wait{Log: logr.Discard(), HealthAddress: address, Ask: func(context.Context) error {
		if attempts++; attempts == 1 {
			return refused
		}
		alive, ready = get(t, address, "/healthz"), get(t, address, "/readyz")
		return nil
	}}.ForAnswer(t.Context())
	if err != nil || alive != http.StatusOK || ready != http.StatusServiceUnavailable {
		t.Errorf("healthz %d, readyz %d, error %v", alive, ready, err)
	}
	listener, err = net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the health address is not free: %v", err)
	}
	defer func() { _ = listener.Close() }()
	err = Wait{Log: logr.Discard(), HealthAddress: address, Ask: func(context.Context) error { return refused }}.ForAnswer(t.Context())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--health-probe-bind-address") {
		t.Errorf("an address in use: %v", err)
	}
}

func get(t *testing.T, address, path string) int {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}
