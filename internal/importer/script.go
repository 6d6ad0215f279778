package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// script is what pg_restore writes, on its way to psql. It is one transaction: this begins
// it, and holds back its end, before which comes what else belongs to the transaction.
type script struct {
	to io.Writer
	// copied is called with the tables whose rows have begun, and the bytes so far, for
	// each table and each mebibyte. What it counts decides nothing.
	copied func(tables int, bytes int64)

	// skipped are extensions whose comments are left out: only the role that they belong to
	// may write those.
	skipped []string
	options optionFilter

	held           []byte
	headed, drops  bool
	quotes         int
	inRows         bool
	tables         int
	size, reported int64
}

// heldSize is how much of the script is always held back, in bytes. Its end is a few hundred.
const heldSize = 4096

var errNoEnd = errors.New("pg_restore wrote no end of its transaction")

// passAll writes a beginning, and then what pg_restore writes but the end.
func (s *script) passAll(beginning string, from io.Reader) error {
	if _, err := io.WriteString(s.to, beginning); err != nil {
		return err
	}
	lines := bufio.NewReaderSize(from, 1<<20)
	begins := true // of a line: long ones come in parts
	for {
		part, err := lines.ReadSlice('\n')
		s.count(part, begins)
		kept := part
		if s.isDropped(part, begins) {
			kept = nil
		} else if !s.inRows {
			kept = s.options.filter(part, begins)
		}
		if err := s.pass(kept); err != nil {
			return err
		}
		begins = bytes.HasSuffix(part, []byte{'\n'})
		switch {
		case err == io.EOF: //nolint:errorlint // as it is documented
			s.copied(s.tables, s.size)
			if s.findEnd() < 0 {
				return errNoEnd
			}
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read what pg_restore writes: %w", err)
		}
	}
}

// pass holds back a part, and writes what was held back before.
func (s *script) pass(part []byte) error {
	s.held = append(s.held, part...)
	n := len(s.held) - heldSize
	if n < heldSize { // not for each line
		return nil
	}
	_, err := s.to.Write(s.held[:n])
	s.held = append(s.held[:0], s.held[n:]...)
	return err
}

// isDropped says whether a part belongs to a comment on an extension that is skipped. Such a
// statement follows a header, which pg_restore writes, and ends with its last quote.
func (s *script) isDropped(part []byte, begins bool) bool {
	line := string(bytes.TrimRight(part, "\r\n"))
	switch {
	case s.drops:
	case s.inRows || !begins:
		return false
	case s.headed && s.isComment(line, "COMMENT ON EXTENSION ", " IS "):
		s.drops, s.quotes = true, 0
	default:
		s.headed = s.headed && (line == "" || line == "--") || s.isComment(line, "-- Name: EXTENSION ", "; Type: COMMENT; ")
		return false
	}
	s.quotes += strings.Count(line, "'")
	if s.quotes%2 == 0 && strings.HasSuffix(line, ";") {
		s.drops, s.headed = false, false
	}
	return true
}

// isComment says whether a line begins with the name of a skipped extension between two texts.
func (s *script) isComment(line, before, after string) bool {
	return slices.ContainsFunc(s.skipped, func(name string) bool {
		return strings.HasPrefix(line, before+name+after) || strings.HasPrefix(line, before+quoteName(name)+after)
	})
}

// count counts tables and bytes.
func (s *script) count(part []byte, begins bool) {
	s.size += int64(len(part))
	line := bytes.TrimRight(part, "\r\n")
	switch {
	case begins && s.inRows && string(line) == `\.`:
		s.inRows = false
	case begins && !s.inRows && bytes.HasPrefix(line, []byte("COPY ")) && bytes.HasSuffix(line, []byte(" FROM stdin;")):
		s.inRows = true
		s.tables++
		s.reported = -1 << 20
	}
	if s.size-s.reported >= 1<<20 {
		s.reported = s.size
		s.copied(s.tables, s.size)
	}
}

const commit = "\nCOMMIT;\n"

// complete is the comment with which pg_restore ends a script.
const complete = "\n-- PostgreSQL database dump complete\n"

// findEnd finds the end of the transaction, after which pg_restore writes comments and a
// command of psql; negative for none.
func (s *script) findEnd() int {
	at := bytes.LastIndex(s.held, []byte(commit))
	if at < 0 || !bytes.Contains(s.held[at:], []byte(complete)) {
		return -1
	}
	for line := range bytes.Lines(s.held[at+len(commit):]) {
		if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("--")) && !bytes.HasPrefix(line, []byte(`\unrestrict `)) {
			return -1
		}
	}
	return at
}

// end writes what completes the transaction, and its end.
func (s *script) end(statements string) error {
	at := s.findEnd()
	_, err := io.WriteString(s.to, string(s.held[:at])+"\n"+statements+string(s.held[at:]))
	return err
}

// SQLSTATEs of what the transaction of an import raises.
const (
	codeDiffers = "HF001" // the copy differs
	codeContent = "HF002" // the database is not empty any more
)

// lockKey of the advisory lock that an import holds in the database that it fills.
const lockKey = 0x686f6c6466617374

// withoutTimeouts has a transaction wait as long as it takes, whatever spec.parameters say:
// nothing is written while the source's catalogs are read. Not every version has every setting.
const withoutTimeouts = `select pg_catalog.set_config(name, '0', true) from pg_catalog.pg_settings
	where name in ('idle_in_transaction_session_timeout', 'idle_session_timeout', 'lock_timeout', 'statement_timeout', 'transaction_timeout')`

// beginning begins the transaction, keeps every other import out of the database until it
// ends, and refuses to write into a database that is not empty. pg_restore begins the same
// transaction again, of which PostgreSQL only warns.
func beginning(database string) string {
	return fmt.Sprintf(`begin isolation level read committed, read write;
%s;
set local client_min_messages to error;
set local search_path to pg_catalog;
do %s;
`, withoutTimeouts, literal(fmt.Sprintf(`declare found text[]; begin
	if not pg_try_advisory_xact_lock(%d) then raise exception using errcode = '55P03', message = 'another import has not ended'; end if;
	found := %s;
	if cardinality(found) > 0 then raise exception using errcode = '%s', message = %s || array_to_string(found, ', '); end if;
end`, int64(lockKey), contentQuery, codeContent, literal("database "+database+" holds data already: "))))
}

// verification compares the new database with the source, inside the transaction, has
// statistics made, and records the import.
func verification(v inventory, database, record string) string {
	var b strings.Builder
	check := func(what, query string, want int64) {
		body := fmt.Sprintf("declare n bigint := (%s); begin if n <> %d then raise exception using errcode = '%s', message = %s || n || %s; end if; end",
			query, want, codeDiffers, literal(what+": "), literal(fmt.Sprintf(" in the copy, and %d in the source", want)))
		fmt.Fprintf(&b, "do %s;\n", literal(body)) // no tag of dollars: a table's name may hold any
	}
	b.WriteString("\nset local search_path to pg_catalog;\nset local client_min_messages to error;\n")
	for _, t := range v.Tables {
		if t.Forced {
			fmt.Fprintf(&b, "alter table only %s no force row level security;\n", t.Name)
		}
		check("rows of "+t.Name, "select count(*) from only "+t.Name, t.Rows)
		if t.Forced {
			fmt.Fprintf(&b, "alter table only %s force row level security;\n", t.Name)
		}
	}
	check("sequences", countSequences, v.Sequences)
	check("large objects", countLargeObjects, v.LargeObjects)
	fmt.Fprintf(&b, "analyze;\ncomment on database %s is %s;\n", quoteName(database), literal(record))
	return b.String()
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// literal quotes a text whatever standard_conforming_strings is.
func literal(text string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}
