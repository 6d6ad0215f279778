package importer

import (
	"fmt"
	"strings"
	"testing"
)

const dumped = `BEGIN;

SET client_min_messages = warning;
--
-- Name: tidy; Type: PROCEDURE
--
CREATE PROCEDURE tidy() AS $$
COMMIT;

-- goes on
COPY nothing (a) FROM stdin;
$$;
`

const ending = `
COMMIT;

--
-- PostgreSQL database dump complete
--

\unrestrict key

`

// passed is what psql gets of a script, and what is reported of it.
func passed(t *testing.T, text string) (s *script, got *strings.Builder, tables, calls int, err error) {
	t.Helper()
	got = &strings.Builder{}
	s = &script{to: got, copied: func(n int, _ int64) { tables, calls = n, calls+1 }}
	err = s.passAll("begin;\n", strings.NewReader(text))
	return s, got, tables, calls, err
}

// Whatever the script says before, its end is held back, and what else belongs to the
// transaction comes before it.
func TestScriptHoldsTheEndOfItsTransaction(t *testing.T) {
	rows := "COPY public.t (a) FROM stdin;\nCOMMIT;\n" + strings.Repeat(strings.Repeat("row", 50)+"\n", 20_000) + "\\.\n"
	for name, before := range map[string]string{
		"a short one":                                 dumped,
		"a long one":                                  dumped + rows,
		"one with a line of more than a buffer":       dumped + rows + "SELECT '" + strings.Repeat("x", 3<<20) + "';\n",
		"one whose last line looks like that of rows": rows + "COMMENT ON TABLE t IS 'a\nCOPY b FROM stdin;\n';\n",
	} {
		s, got, _, _, err := passed(t, before+ending)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text := got.String(); !strings.HasPrefix("begin;\n"+before, text) {
			t.Errorf("%s: psql has got something else, or the end", name)
		}
		if err := s.end("checks;\n"); err != nil {
			t.Fatal(err)
		}
		if got.String() != "begin;\n"+before+"\nchecks;\n"+ending {
			t.Errorf("%s: %d bytes are another script", name, got.Len())
		}
	}
}

// The end is held back wherever it falls between two writes.
func TestScriptHoldsItsEndAtEachOffset(t *testing.T) {
	for pad := 0; pad < 3*heldSize; pad += 61 {
		_, got, _, _, err := passed(t, dumped+"-- "+strings.Repeat("x", pad)+"\n"+ending)
		if err != nil || strings.Contains(got.String(), "dump complete") || strings.HasSuffix(strings.TrimSpace(got.String()), "\nCOMMIT;") {
			t.Fatalf("%d bytes before: %v, psql has got the end", pad, err)
		}
	}
}

// Of an extension that another role created, the comment is left out, and nothing else.
func TestScriptLeavesOutCommentsOfExtensions(t *testing.T) {
	header := "--\n-- Name: EXTENSION %s; Type: COMMENT; Schema: -; Owner: -\n--\n\n"
	comment := func(name, text string) string {
		return fmt.Sprintf(header, name) + "COMMENT ON EXTENSION " + name + " IS '" + text + "';\n"
	}
	kept := []string{
		comment("citext", "of the owner"),
		"COPY public.t (a) FROM stdin;\n" + comment("postgis", "a row") + "\\.\n",
		"CREATE FUNCTION f() AS $$\nCOMMENT ON EXTENSION postgis IS 'by hand';\n$$;\n",
		"CREATE FUNCTION g() AS $$\n" + fmt.Sprintf(header, "postgis") + "goes on\nCOMMENT ON EXTENSION postgis IS 'by hand';\n$$;\n",
	}
	dropped := []string{comment("postgis", "its own"), comment("postgis", "it''s;\nof two'';\nlines"), comment(`"uuid-ossp"`, "quoted")}
	for _, first := range dropped {
		var want strings.Builder
		text := first
		want.WriteString(first[:strings.Index(first, "COMMENT ON")])
		for _, k := range kept {
			text += k
			want.WriteString(k)
		}
		got := &strings.Builder{}
		s := &script{to: got, skipped: []string{"postgis", "uuid-ossp"}, copied: func(int, int64) {}}
		if err := s.passAll("", strings.NewReader(text+ending)); err != nil {
			t.Fatal(err)
		}
		if err := s.end(""); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String()+"\n"+ending {
			t.Errorf("%s\nbecame %s", text, got)
		}
	}
}

// A script that was cut off has no end, and its transaction gets none.
func TestScriptWithoutItsEnd(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                      "",
		"cut off":                      dumped,
		"cut off in rows":              dumped + "COPY public.t (a) FROM stdin;\nCOMMIT;\n",
		"a statement after the commit": dumped + ending + "SELECT 1;\n",
	} {
		if _, got, _, _, err := passed(t, text); err != errNoEnd { //nolint:errorlint // as it is returned
			t.Errorf("%s: %v, %q", name, err, got.String())
		}
	}
}

// A table that is large is heard of as it is copied.
func TestScriptReportsTablesAndBytes(t *testing.T) {
	text := fmt.Sprintf("COPY public.t (a) FROM stdin;\n%s\\.\n\nCOPY public.u (a) FROM stdin;\n\\.\n", strings.Repeat(strings.Repeat("r", 1023)+"\n", 5<<10))
	_, _, tables, calls, err := passed(t, text+ending)
	if err != nil || tables != 2 || calls < 7 || calls > 9 {
		t.Errorf("%d tables, %d calls, %v", tables, calls, err)
	}
}

// A name of the source is data: whatever it holds, the check stays one statement.
func TestVerificationHoldsAnyName(t *testing.T) {
	got := verification(inventory{Tables: []table{{Name: `public."x$holdfast$; commit; --'\"`, Rows: 1}}}, "app", "record")
	if strings.Contains(got, "do $") || !strings.Contains(got, `only public."x$holdfast$; commit; --''\\"`) {
		t.Errorf("%s", got)
	}
	for n, part := range strings.Split(strings.NewReplacer(`\\`, "", "''", "").Replace(got), "'") {
		if n%2 == 0 && strings.Contains(part, "commit") {
			t.Errorf("%s is outside of a literal", part)
		}
	}
}

// The transaction waits for what is read of the source, whatever timeouts the cluster has.
func TestBeginningHasNoTimeouts(t *testing.T) {
	got := beginning("app")
	for _, timeout := range []string{"idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout", "transaction_timeout"} {
		if !strings.Contains(got, "'"+timeout+"'") {
			t.Errorf("%s may end it", timeout)
		}
	}
	if !strings.HasPrefix(got, "begin ") || !strings.Contains(got, "set_config(name, '0', true)") || strings.Contains(got, "do $") {
		t.Errorf("%s", got)
	}
}
