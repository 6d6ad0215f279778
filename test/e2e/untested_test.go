//go:build e2e || soak

package e2e

import (
	"fmt"
	"testing"
)

// notTested says that a part of a test was left out. test/run-e2e.sh lists these lines
// at the end of a run.
func notTested(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("*** NOT TESTED: %s ***", fmt.Sprintf(format, args...))
}

// skipTest ends a test that cannot run here, and says so at the end of the run.
func skipTest(t *testing.T, format string, args ...any) {
	t.Helper()
	notTested(t, format, args...)
	t.SkipNow()
}
