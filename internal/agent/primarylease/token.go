package primarylease

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// tokenAge is how old a token may be before its file is read again. The kubelet
// replaces it long before it expires.
const tokenAge = 10 * time.Second

// token is the bearer token in a file that the kubelet rotates. Requests never wait
// for the file: it is read again beside them.
type token struct {
	file    string
	value   atomic.Pointer[string]
	readAt  atomic.Int64 // time.Duration
	reading atomic.Bool
}

// openToken reads the file for the first time. An empty name is no token.
func openToken(file string, now time.Duration) (*token, error) {
	t := &token{file: file}
	none := ""
	t.value.Store(&none)
	if file == "" {
		return t, nil
	}
	return t, t.read(now)
}

func (t *token) read(now time.Duration) error {
	text, err := os.ReadFile(t.file)
	if err != nil {
		return fmt.Errorf("read the token of the service account: %w", err)
	}
	value := strings.TrimSpace(string(text))
	if value == "" {
		return fmt.Errorf("the token of the service account in %s is empty", t.file)
	}
	t.value.Store(&value)
	t.readAt.Store(int64(now))
	return nil
}

// get is the token as it was last read. An old or refused one is read again.
func (t *token) get(now time.Duration) string {
	if now-time.Duration(t.readAt.Load()) >= tokenAge {
		t.refresh(now)
	}
	return *t.value.Load()
}

// refresh reads the file beside the request. One that cannot be read leaves the
// token as it is, and is tried again with the next request.
func (t *token) refresh(now time.Duration) {
	if t.file == "" || !t.reading.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer t.reading.Store(false)
		_ = t.read(now)
	}()
}
