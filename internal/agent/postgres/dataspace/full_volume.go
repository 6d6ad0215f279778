package dataspace

import (
	"errors"
	"regexp"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/process"
)

// IsOwnVolumeFull says whether a program failed because this member's volume was
// full.
func IsOwnVolumeFull(err error) bool {
	var failed *process.Failure
	if !errors.As(err, &failed) {
		return diskspace.OutOfSpace(err)
	}
	own, _ := whoseVolume(failed)
	return own
}

// IsPrimaryVolumeFull says whether a program failed because the primary that it
// spoke to had a full volume.
func IsPrimaryVolumeFull(err error) bool {
	var failed *process.Failure
	if !errors.As(err, &failed) {
		return false
	}
	_, primary := whoseVolume(failed)
	return primary
}

// MentionsFullVolume says whether a line speaks of a full volume.
func MentionsFullVolume(line string) bool {
	return strings.Contains(line, "No space left on device") || strings.Contains(line, "Disk quota exceeded")
}

// serverSays are the words that a server's lines begin with in what a client
// prints: a client's own are in small letters.
var serverSays = regexp.MustCompile(`\b(ERROR|FATAL|PANIC|WARNING|DETAIL|CONTEXT): {1,2}`)

// whoseVolume was full, by a program's own account: this member's, or that of
// the server it spoke to.
func whoseVolume(f *process.Failure) (own, server bool) {
	for line := range strings.Lines(f.Stderr) {
		switch {
		case !MentionsFullVolume(line):
		case serverSays.MatchString(line):
			server = true
		default:
			own = true
		}
	}
	return own, server
}
