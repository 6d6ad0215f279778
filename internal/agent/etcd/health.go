package etcd

import (
	"context"
	"errors"
	"net"
	"net/http"
)

// connectAnew asks etcd's port for clients over a connection of its own. Before
// etcd has answered clients once it may be silent for as long as it reads its
// data.
func (l *etcdRun) connectAnew(ctx context.Context) error {
	l.mu.Lock()
	before := l.answered
	l.mu.Unlock()
	if !before {
		return nil
	}
	return l.local.connectAnew(ctx)
}

// connectAnew asks for etcd's version. Any answer is one, and so is a certificate
// that either side refuses.
func (l *local) connectAnew(ctx context.Context) error {
	bundle, _ := l.certificates.Current()
	if bundle == nil {
		return nil // and nothing to ask with
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: l.clientTLS(bundle), DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.endpoint+"/version", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err == nil {
		return response.Body.Close()
	}
	var broken *net.OpError
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &broken) && broken.Op == "dial" {
		return err
	}
	return nil
}
