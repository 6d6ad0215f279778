//go:build e2e || soak

package e2e

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

// untested is what could not be tested here, and why: go test without -v is
// silent about what was skipped.
var untested struct {
	mu    sync.Mutex
	lines []string
}

// notTested says at the end of the run that a part of a test was left out.
func notTested(t *testing.T, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	t.Logf("*** NOT TESTED: %s ***", why)
	untested.mu.Lock()
	defer untested.mu.Unlock()
	untested.lines = append(untested.lines, t.Name()+": "+why)
}

// skipTest ends a test that cannot run here, and says so at the end of the run.
func skipTest(t *testing.T, format string, args ...any) {
	t.Helper()
	notTested(t, format, args...)
	t.SkipNow()
}

// tellUntested writes what was not tested, if anything.
func tellUntested(to io.Writer) {
	untested.mu.Lock()
	defer untested.mu.Unlock()
	if len(untested.lines) > 0 {
		fmt.Fprintf(to, "*** NOT TESTED, %d times ***\n\t%s\n", len(untested.lines), strings.Join(untested.lines, "\n\t"))
	}
}
