package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// script is what pg_restore writes, on its way to psql. It is one transaction, whose end
// is held back: what else belongs to the transaction comes before it.
type script struct {
	to io.Writer
	// skipped are extensions whose comments are left out: they belong to another role.
	skipped []string
	// copied is called for each table whose rows begin, and with the bytes so far.
	copied func(tables int, bytes int64)

	inRows, drops bool
	header        string
	held          bytes.Buffer
	tables        int
	size          int64
}

var errNoEnd = errors.New("pg_restore wrote no end of its transaction")

// passAll passes what pg_restore writes but the end of the transaction.
func (s *script) passAll(from io.Reader) error {
	lines := bufio.NewReaderSize(from, 1<<20)
	begins := true // of a line: long ones come in parts
	for {
		part, err := lines.ReadSlice('\n')
		if len(part) > 0 {
			s.size += int64(len(part))
			if err := s.passPart(part, begins); err != nil {
				return err
			}
			begins = part[len(part)-1] == '\n'
		}
		switch {
		case err == io.EOF: //nolint:errorlint // as it is documented
			s.copied(s.tables, s.size)
			if !bytes.HasPrefix(s.held.Bytes(), []byte("COMMIT;")) {
				return errNoEnd
			}
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read what pg_restore writes: %w", err)
		}
	}
}

func (s *script) passPart(part []byte, begins bool) error {
	switch {
	case s.inRows:
		s.inRows = !begins || string(bytes.TrimRight(part, "\r\n")) != `\.`
		return s.write(part)
	case !begins:
		return s.write(part)
	}
	line := string(bytes.TrimRight(part, "\r\n"))
	if s.holds(line) {
		s.held.Write(part)
		return nil
	}
	if s.held.Len() > 0 {
		// It was no end, such as a line of a procedure.
		held := bytes.Clone(s.held.Bytes())
		s.held.Reset()
		if err := s.write(held); err != nil {
			return err
		}
	}
	if s.isDropped(line) {
		return nil
	}
	if strings.HasPrefix(line, "COPY ") && strings.HasSuffix(line, " FROM stdin;") {
		s.inRows = true
		s.tables++
		s.copied(s.tables, s.size)
	}
	return s.write(part)
}

// holds says whether a line may belong to the end of the script: the end of the
// transaction, and comments and psql's own commands after it.
func (s *script) holds(line string) bool {
	if s.held.Len() == 0 {
		return line == "COMMIT;"
	}
	return line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, `\unrestrict `)
}

// isDropped says whether a line belongs to a comment on an extension of another role,
// which only that role may write.
func (s *script) isDropped(line string) bool {
	if strings.HasPrefix(line, "-- Name: ") {
		s.header, s.drops = line, false
		for _, name := range s.skipped {
			s.drops = s.drops || strings.HasPrefix(line, "-- Name: EXTENSION "+name+"; Type: COMMENT;") || strings.HasPrefix(line, `-- Name: EXTENSION "`+name+`"; Type: COMMENT;`)
		}
	}
	return s.drops && !strings.HasPrefix(line, "--")
}

func (s *script) write(part []byte) error {
	_, err := s.to.Write(part)
	return err
}

// end writes what completes the transaction, and its end.
func (s *script) end(statements string) error {
	_, err := io.WriteString(s.to, statements+s.held.String())
	return err
}

// verification compares the new database with the source, inside the transaction, has
// statistics made, and records the import.
func verification(v inventory, database, record string) string {
	var b strings.Builder
	check := func(what, query string, want int64) {
		fmt.Fprintf(&b, "do $holdfast$ declare n bigint := (%s); begin if n <> %d then raise exception using errcode = 'HF001', message = %s || n || %s; end if; end $holdfast$;\n",
			query, want, literal(what+": "), literal(fmt.Sprintf(" in the copy, and %d in the source", want)))
	}
	b.WriteString("\nset local search_path to pg_catalog;\n")
	for _, t := range v.Tables {
		if !t.Hidden {
			check("rows of "+t.Name, "select count(*) from only "+t.Name, t.Rows)
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
