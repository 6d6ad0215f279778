package rewind

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// checkSource makes sure that the primary still has the WAL that a standby needs which
// begins at the last common checkpoint: pg_rewind does not ask.
func (w rewinding) checkSource(ctx context.Context, common lsn.Point, size int64) *Outcome {
	name := w.nameSegment(common.Position, size)
	conn, err := rolechange.DialUpstream(ctx, w.primary.Connection.ForRewind())
	if err != nil {
		return &Outcome{Result: Failed, Reason: err.Error()}
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	read := conn.ExecParams(ctx, "select (pg_stat_file('pg_wal/' || $1, true)).size is not null", [][]byte{[]byte(name)}, []uint32{25}, nil, nil).Read() // text
	switch {
	case read.Err != nil:
		return &Outcome{Result: Failed, Reason: read.Err.Error()}
	case len(read.Rows) != 1 || !bytes.Equal(read.Rows[0][0], []byte("t")):
		return &Outcome{Result: NotPossible, Reason: "the primary no longer has the WAL since the last common checkpoint, at " + common.String() + ": " + name}
	}
	return nil
}

// readStart reads where a server begins that starts with rewound data.
func readStart(pgdata string) (uint64, error) {
	data, err := os.ReadFile(filepath.Join(pgdata, "backup_label"))
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "START WAL LOCATION: "); found {
			return wal.ParsePosition(strings.Fields(text + " ")[0])
		}
	}
	return 0, errors.New("backup_label does not say where the WAL begins")
}
