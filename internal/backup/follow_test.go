package backup

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Progress is reported at once and when it changes, and never after the end: a late
// word would stand over what the next step says.
func TestFollowReportsWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted Counter
		var reported []string
		stop := FollowProgress(t.Context(), 0, func() string { return fmt.Sprint(counted.Load()) },
			func(_ context.Context, progress string) { reported = append(reported, progress) })
		for _, text := range []string{"", "ab", "", "c"} {
			fmt.Fprint(&counted, text)
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		stop()
		fmt.Fprint(&counted, "more")
		time.Sleep(time.Minute)
		if want := []string{"0", "2", "3"}; !slices.Equal(reported, want) {
			t.Errorf("reported %v, want %v", reported, want)
		}
	})
}
