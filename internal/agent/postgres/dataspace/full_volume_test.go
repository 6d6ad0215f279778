package dataspace

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/process"
)

// Whose volume is full decides what is to be done about it.
func TestOutOfSpace(t *testing.T) {
	program := func(stderr string) error { return &process.Failure{Program: "pg_basebackup", Stderr: stderr} }
	cases := []struct {
		name         string
		err          error
		own, primary bool
	}{
		{"a file of the copy",
			program("pg_basebackup: error: could not write to file \"base/1/2\": No space left on device\npg_basebackup: removing data directory\n"), true, false},
		{"a segment of the log of the copy",
			program("pg_basebackup: error: could not write 8192 bytes to WAL file \"000000010000000000000003\": No space left on device\n"), true, false},
		{"a quota", program("pg_basebackup: error: could not create directory \"base\": Disk quota exceeded\n"), true, false},
		{"the primary refuses the backup",
			program("pg_basebackup: error: could not initiate base backup: ERROR:  could not write file \"backup_label\": No space left on device\n"), false, true},
		{"the primary fails in the middle of the backup",
			program("pg_basebackup: error: backup failed: ERROR:  could not extend file \"base/5/1259\": No space left on device\nHINT:  Check free disk space.\n"), false, true},
		{"the primary has no room for the connection",
			program("pg_basebackup: error: connection to server at \"orders-0\", port 5432 failed: FATAL:  could not write init file: No space left on device\n"), false, true},
		{"the primary explains itself in a second line",
			program("pg_basebackup: error: could not read COPY data: ERROR:  backup failed\nDETAIL:  No space left on device\n"), false, true},
		{"both", program("could not read COPY data: ERROR:  No space left on device\ncould not write: No space left on device\n"), true, true},
		{"something else", program("pg_basebackup: error: connection refused\n"), false, false},
		{"the agent's own write", &os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC}, true, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := fmt.Errorf("copy: %w", c.err)
			if own, primary := IsOwnVolumeFull(err), IsPrimaryVolumeFull(err); own != c.own || primary != c.primary {
				t.Errorf("own volume %t, primary's %t; want %t, %t", own, primary, c.own, c.primary)
			}
		})
	}
}
