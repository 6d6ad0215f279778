package importer

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/backup"
)

const dumped = `BEGIN;

-- Name: EXTENSION postgis; Type: COMMENT; Schema: -; Owner: -
--

COMMENT ON EXTENSION postgis IS 'of another role';


--
-- Name: tidy; Type: PROCEDURE
--
CREATE PROCEDURE tidy() AS $$
COMMIT;

-- goes on
$$;
COPY public.t (a) FROM stdin;
COMMIT;
-- Name: EXTENSION postgis; Type: COMMENT; of a row
\.

COMMIT;

--
-- PostgreSQL database dump complete
--

\unrestrict key
`

func TestScriptHoldsTheEndOfItsTransaction(t *testing.T) {
	var to strings.Builder
	s := &script{to: &to, skipped: []string{"postgis"}, copied: func(int, int64) {}}
	if err := s.passAll(strings.NewReader(dumped)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(to.String(), "complete") || strings.Contains(to.String(), "of another role") || !strings.Contains(to.String(), "of a row") || s.tables != 1 {
		t.Errorf("%s", to.String())
	}
	if err := s.end("checks;\n"); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(dumped, "COMMENT ON EXTENSION postgis IS 'of another role';\n\n\n", "", 1)
	want = strings.Replace(want, "--\n\n--\n-- Name: tidy", "--\n--\n-- Name: tidy", 1)
	at := strings.LastIndex(want, "COMMIT;")
	want = want[:at] + "checks;\n" + want[at:]
	if got := to.String(); strings.ReplaceAll(got, "\n", "") != strings.ReplaceAll(want, "\n", "") {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestErrorsSayWhetherTheyPass(t *testing.T) {
	for _, c := range []struct {
		err       error
		permanent bool
		says      string
	}{
		{explainConnection("the source", &pgconn.PgError{Code: "28P01", Message: "no entry", Detail: "a row"}), true, "no entry (SQLSTATE 28P01)"},
		{explainConnection("the source", &pgconn.PgError{Code: "57P03", Message: "starting"}), false, "starting"},
		{explainConnection("the source", errors.New("no route")), false, "no route"},
		{explainTarget(t.Context(), "psql:<stdin>:7: ERROR:  53100: could not extend file\nDETAIL:  a row", errors.New("exit 3")), true, "raise spec.storage.size"},
		{explainTarget(t.Context(), "FATAL:  57P01: terminating connection", errors.New("exit 2")), false, "terminating"},
		{explainTarget(t.Context(), "connection to server was lost", errors.New("exit 2")), false, "was lost"},
		{explainDump(t.Context(), "pg_dump", "pg_dump: error: query failed: ERROR:  permission denied for table t", errors.New("exit 1")), true, "permission denied"},
		{explainDump(t.Context(), "pg_dump", "pg_dump: error: connection to server failed", errors.New("exit 1")), false, "connection to server"},
	} {
		if backup.InVain(c.err) != c.permanent || !strings.Contains(c.err.Error(), c.says) || strings.Contains(c.err.Error(), "a row") {
			t.Errorf("%v: permanent %t", c.err, backup.InVain(c.err))
		}
	}
}

func TestServerTellsNoPasswordInArguments(t *testing.T) {
	s := Server{Hosts: []string{"a", "b"}, Port: 5432, Database: "d", User: "u", Password: "p'\\", TLSMode: "verify-full"}
	env := strings.Join(s.environment(), "\n")
	for _, want := range []string{"PGHOST=a,b", "PGPORT=5432,5432", `PGPASSWORD=p'\`, "PGSSLMODE=verify-full"} {
		if !strings.Contains(env, want) {
			t.Errorf("%s is not in %s", want, env)
		}
	}
}
