package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// retries of one event, and the longest pause between two of them: while a receiver is
	// away, the events of that time are worth less than those that follow.
	retries   = 2
	longPause = 5 * time.Second
	// postTimeout is how long one request may take.
	postTimeout = 5 * time.Second
	// maxAnswer is how much of an answer is read, for the connection to be used again.
	maxAnswer = 4 << 10
)

// newClient makes the client that posts, and counts each request by its result.
func newClient(posted *prometheus.CounterVec) *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax, c.RetryWaitMax = retries, longPause
	c.HTTPClient.Timeout = postTimeout
	c.HTTPClient.Transport = counting{c.HTTPClient.Transport, posted}
	c.CheckRetry = func(ctx context.Context, response *http.Response, err error) (bool, error) {
		if response != nil && response.StatusCode == http.StatusTooManyRequests {
			return false, nil
		}
		return retryablehttp.ErrorPropagatedRetryPolicy(ctx, response, err)
	}
	// An answer must not say how long: what waits would be dropped.
	c.Backoff = func(shortest, longest time.Duration, attempt int, _ *http.Response) time.Duration {
		return retryablehttp.DefaultBackoff(shortest, longest, attempt, nil)
	}
	c.ErrorHandler = func(response *http.Response, err error, _ int) (*http.Response, error) {
		if response != nil {
			response.Body.Close()
		}
		return nil, err
	}
	return c
}

// send sends an event to the receiver, three times at most. Errors do not name the
// address, which may have a token.
func (n *Notifier) send(ctx context.Context, event eventv1.Event) error {
	body, err := json.Marshal(event)
	if err != nil {
		return err
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, n.address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address is not valid")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := n.client.Do(request)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode/100 != 2 && response.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("unexpected HTTP status %s", response.Status)
	}
	return nil
}

// counting counts the requests to a receiver.
type counting struct {
	next   http.RoundTripper
	posted *prometheus.CounterVec
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	result := "failed"
	switch {
	case err != nil:
	case response.StatusCode/100 == 2:
		result = "accepted"
	case response.StatusCode == http.StatusTooManyRequests:
		result = "duplicate" // the receiver has had the same event a short time ago
	}
	c.posted.WithLabelValues(result).Inc()
	return response, err
}
