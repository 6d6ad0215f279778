package importer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/backup"
)

func TestErrorsSayWhetherTheyPass(t *testing.T) {
	dump := func(says string) error {
		return explainDump(t.Context(), "pg_dump", "pg_dump: error: "+says, errors.New("exit 1"))
	}
	for _, c := range []struct {
		err       error
		permanent bool
		says      string
	}{
		{explainConnection("the source", &pgconn.PgError{Code: "28P01", Message: "no entry", Detail: "a row"}), true, "no entry (SQLSTATE 28P01)"},
		{explainConnection("the source", &pgconn.PgError{Code: "57P03", Message: "starting"}), false, "starting"},
		{explainConnection("the source", errors.New("no route")), false, "no route"},
		{explainConnection("the source", errors.New("x509: certificate signed by unknown authority")), true, "unknown authority"},
		{explainConnection("the source", errors.New("server refused TLS connection")), true, "refused TLS"},
		{explainTarget(t.Context(), "psql:<stdin>:7: ERROR:  53100: could not extend file\nDETAIL:  a row", errors.New("exit 3")), true, "raise spec.storage.size"},
		{explainTarget(t.Context(), "psql:<stdin>:7: WARNING:  01000: beware\npsql:<stdin>:9: ERROR:  42704: role \"r\" does not exist\nLINE 1: a row", errors.New("exit 3")), true, "create what is missing"},
		{explainTarget(t.Context(), "psql:<stdin>:7: ERROR:  22P02: invalid input syntax for type integer: \"a row\"\nCONTEXT:  COPY t, line 1: \"a row\"", errors.New("exit 3")), true, "type integer (SQLSTATE 22P02)"},
		{explainTarget(t.Context(), "psql:<stdin>:7: ERROR:  22003: value \"a row\" is out of range for type integer", errors.New("exit 3")), true, "new database: value (SQLSTATE 22003)"},
		{explainTarget(t.Context(), "psql:<stdin>:7: ERROR:  22P02: invalid input syntax for type json: \"a \" b\" a row", errors.New("exit 3")), true, "type json (SQLSTATE 22P02)"},
		{explainTarget(t.Context(), "psql:<stdin>:7: ERROR:  P0001: no such thing as a row", errors.New("exit 3")), true, "has raised an error (SQLSTATE P0001)"},
		{explainTarget(t.Context(), "psql:<stdin>:7: ERROR:  23505: could not create unique index \"i\"\nCONTEXT:  COPY t, line 1: \"ERROR:  08000: a row\"", errors.New("exit 3")), true, "unique index"},
		{explainTarget(t.Context(), "FATAL:  25P03: terminating connection due to idle-in-transaction timeout", errors.New("exit 2")), false, "idle-in-transaction"},
		{explainTarget(t.Context(), "FATAL:  57P01: terminating connection", errors.New("exit 2")), false, "terminating"},
		{explainTarget(t.Context(), "psql:<stdin>:7: error: connection to server was lost\nCONTEXT: a row", errors.New("exit 2")), false, "was lost"},
		{explainTarget(t.Context(), "ERROR:  55P03: another import has not ended", errors.New("exit 3")), false, "has not ended"},
		{explainTarget(t.Context(), "ERROR:  HF002: database app holds data already: public.t", errors.New("exit 3")), false, "holds data already"},
		{explainTarget(t.Context(), "ERROR:  HF001: rows of t: 1 in the copy, and 2 in the source", errors.New("exit 3")), true, "1 in the copy"},
		{dump("query failed: ERROR:  permission denied for table t\npg_dump: detail: Query was: a row"), true, "permission denied"},
		{dump("Dumping the contents of table \"t\" failed: PQgetResult() failed.\npg_dump: detail: Error message from server: ERROR:  invalid byte sequence for encoding \"UTF8\": 0xff\npg_dump: detail: Command was: a row"), true, "invalid byte sequence"},
		{dump("connection to server failed"), false, "connection to server"},
		{dump(`query failed: ERROR:  snapshot "00000003-0000001B-1" does not exist`), false, "snapshot"},
	} {
		if backup.InVain(c.err) != c.permanent || !strings.Contains(c.err.Error(), c.says) || strings.Contains(c.err.Error(), "a row") {
			t.Errorf("%v: permanent %t", c.err, backup.InVain(c.err))
		}
	}
	stopped, stop := context.WithCancelCause(t.Context())
	stop(errors.New("stopped"))
	if err := explainTarget(stopped, "ERROR:  42704: x", errors.New("killed")); backup.InVain(err) || err.Error() != "stopped" {
		t.Errorf("%v", err)
	}
}

func TestMessagesKeepTheirFirstAndTheirLastPart(t *testing.T) {
	m := &messages{}
	line := strings.Repeat("n", 999) + "\n"
	for range 500 {
		if n, err := m.Write([]byte("first\n" + line)); n != 1006 || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = m.Write([]byte("ERROR:  23505: the cause\n"))
	if got := m.String(); !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "the cause\n") || len(got) > 4*messagesSize {
		t.Errorf("%d bytes", len(got))
	}
}
