package importer

import (
	"strings"
	"testing"
)

// An option that the new server does not know, since it keeps none of its own, is left out of
// the entries of tables, and nothing else is, whatever names and texts look like.
func TestScriptLeavesOutInternalOptions(t *testing.T) {
	entry := func(kind, text string) string {
		return "\n--\n-- Name: it's; Type: " + kind + "; Schema: public; Owner: -\n--\n\n" + text + "\n"
	}
	const (
		only    = "ALTER TABLE ONLY public.\"it's\" ALTER COLUMN \"a \"\" SET (pg_attver=1);\" SET (pg_attver=26667504);\n"
		both    = "ALTER TABLE ONLY public.t ALTER COLUMN a SET (pg_attver=7, n_distinct=5);\n"
		one     = "ALTER TABLE ONLY public.t ALTER COLUMN a SET (n_distinct=5);\n"
		foreign = "ALTER FOREIGN TABLE ONLY public.t ALTER COLUMN a SET (n_distinct=5, pg_attver=7);\n"
		first   = "CREATE TABLE public.\"it's\" (\n    a integer DEFAULT 'it''s'::text\n);\n"
	)
	long := "CREATE TABLE t (" + strings.Repeat(" ", 1<<20-len("CREATE TABLE t ("))
	for name, c := range map[string]struct{ text, want string }{
		"its only option":               {entry("TABLE", first+only+one), entry("TABLE", first+one)},
		"beside another one":            {entry("TABLE", first+both), entry("TABLE", first+one)},
		"of a foreign table":            {entry("FOREIGN TABLE", foreign), entry("FOREIGN TABLE", "ALTER FOREIGN TABLE ONLY public.t ALTER COLUMN a SET (n_distinct=5);\n")},
		"of a materialized view":        {entry("MATERIALIZED VIEW", both), entry("MATERIALIZED VIEW", one)},
		"of the table after rows":       {entry("TABLE DATA", "COPY public.t (a) FROM stdin;\n'\n\\.\n") + entry("TABLE", first+both), entry("TABLE DATA", "COPY public.t (a) FROM stdin;\n'\n\\.\n") + entry("TABLE", first+one)},
		"in another entry":              {entry("FUNCTION", both), entry("FUNCTION", both)},
		"in rows":                       {entry("TABLE", first) + entry("TABLE DATA", "COPY public.t (a) FROM stdin;\n"+both+"\\.\n"), entry("TABLE", first) + entry("TABLE DATA", "COPY public.t (a) FROM stdin;\n"+both+"\\.\n")},
		"in a text":                     {entry("TABLE", "CREATE TABLE t (a text DEFAULT '\n"+both+"');\n"+both), entry("TABLE", "CREATE TABLE t (a text DEFAULT '\n"+both+"');\n"+one)},
		"in a name":                     {entry("TABLE", "CREATE TABLE \"\n"+both+"\" ();\n"), entry("TABLE", "CREATE TABLE \"\n"+both+"\" ();\n")},
		"at the end of a name":          {entry("TABLE", "ALTER TABLE ONLY public.t ALTER COLUMN \"a SET (pg_attver=7);\n\" SET (n_distinct=5);\n"), entry("TABLE", "ALTER TABLE ONLY public.t ALTER COLUMN \"a SET (pg_attver=7);\n\" SET (n_distinct=5);\n")},
		"a header in a text":            {entry("TABLE", "CREATE TABLE t (a text DEFAULT '"+strings.ReplaceAll(entry("VIEW", ""), "'", "''")+"');\n"+both), entry("TABLE", "CREATE TABLE t (a text DEFAULT '"+strings.ReplaceAll(entry("VIEW", ""), "'", "''")+"');\n"+one)},
		"a line beyond a buffer":        {entry("TABLE", "CREATE TABLE t (a text DEFAULT '"+strings.Repeat("x", 3<<20)+"');\n"+both), entry("TABLE", "CREATE TABLE t (a text DEFAULT '"+strings.Repeat("x", 3<<20)+"');\n"+one)},
		"after a comment like a header": {entry("FUNCTION", "-- Name: t; Type: TABLE; Schema: public; Owner: -\n"+both), entry("FUNCTION", "-- Name: t; Type: TABLE; Schema: public; Owner: -\n"+both)},
		"at the end of a long line":     {entry("TABLE", long+both), entry("TABLE", long+both)},
	} {
		s, got, _, _, err := passed(t, "BEGIN;\n"+c.text+ending)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.end(""); err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(got.String(), "\nCOMMIT;\n\n--\n-- PostgreSQL database dump complete")
		if want := "begin;\nBEGIN;\n" + c.want; strings.TrimRight(text, "\n") != strings.TrimRight(want, "\n") {
			t.Errorf("%s: psql has got\n%.600s\nwant\n%.600s", name, text, want)
		}
	}
}
