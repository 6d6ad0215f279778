package store

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A directory is listed while another process writes to it: what that finishes in
// the meantime is no failure.
func TestListWhileAnotherWrites(t *testing.T) {
	dir := t.TempDir()
	writer, reader := open(t, Location{URL: "file://" + dir}, nil), open(t, Location{URL: "file://" + dir}, nil)
	reader.Patience = Patience{} // the first failure counts
	var running sync.WaitGroup
	stop := make(chan struct{})
	running.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := writer.Put(t.Context(), fmt.Sprintf("wal/%03d", n%200), []byte("x")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		if _, err := reader.List(t.Context(), "wal/"); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	running.Wait()
}
