package dataspace

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
)

// MinimumFree is what a start needs: a segment of the WAL, and some more.
const MinimumFree = 24 << 20

// IsFull says whether too little is left to start a database.
func IsFull(s diskspace.Space) bool { return !s.Fits(MinimumFree) }

// SpaceForCopy is what a copy of so much data needs: the WAL of the time that the
// copying takes comes on top, and what the copy needs to start.
func SpaceForCopy(size int64) int64 {
	return size + min(size/10, gibibyte) + 2*16*mebibyte + MinimumFree
}

// CopyFits says whether a copy of so much data fits. An unknown size fits: that
// the volume filled up is seen then.
func CopyFits(s diskspace.Space, size int64) bool { return size == 0 || s.Fits(SpaceForCopy(size)) }

// DescribeMissing says what a copy lacks, in round numbers: they move with every row.
func DescribeMissing(s diskspace.Space, primary string, size int64) string {
	return describeNeed(s, "a copy of the data of "+primary, SpaceForCopy(size))
}

// DescribeMissingForRewind says what a rewind lacks that needs so many bytes, in round
// numbers.
func DescribeMissingForRewind(s diskspace.Space, primary string, needed int64) string {
	return describeNeed(s, "a rewind to the data of "+primary+" keeps the WAL that it drops, which", needed)
}

func describeNeed(s diskspace.Space, what string, needed int64) string {
	return fmt.Sprintf("%s needs %s and the volume has %s left: set spec.storage.size to %s or more",
		what, formatQuantity(RoundUp(needed)), formatQuantity(roundDown(s.Free)), formatQuantity(RoundUp(s.Total-s.Free+needed)))
}

// SpaceAfterFilled is what a copy needs at least for which the space was not enough.
func SpaceAfterFilled(s diskspace.Space) int64 { return RoundUp(s.Free + s.Free/10) }

// roundingUnit in which a size is reported.
func roundingUnit(n int64) int64 {
	if n >= gibibyte {
		return gibibyte
	}
	return 16 * mebibyte
}

// RoundUp returns a number of bytes as people read it, never less than it is.
func RoundUp(n int64) int64 {
	u := roundingUnit(n)
	return (n + u - 1) / u * u
}

func roundDown(n int64) int64 { return n / roundingUnit(n) * roundingUnit(n) }

func formatQuantity(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// FilledCopy remembers a copy that filled the volume although it should have
// fitted. Another one is not tried until the volume is larger, or a pause that
// doubles each time is over. The zero value is none.
type FilledCopy struct {
	total    int64
	until    time.Duration
	failures int
}

// RecordFailure returns the copy after it filled a volume of total bytes: the
// next try waits, each time twice as long.
func (c FilledCopy) RecordFailure(now time.Duration, total int64) FilledCopy {
	pause := min(time.Minute<<min(c.failures, 10), 30*time.Minute)
	return FilledCopy{total: total, until: now + pause, failures: c.failures + 1}
}

// MustWait says whether it is too early to try again on a volume of total bytes.
func (c FilledCopy) MustWait(now time.Duration, total int64) bool {
	return c.failures > 0 && total == c.total && now < c.until
}

const (
	mebibyte = int64(1) << 20
	gibibyte = int64(1) << 30
)
