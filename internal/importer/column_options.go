package importer

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// attributeVersion is an option that newer patch releases of a server keep of a column for
// themselves. Their pg_dump leaves it out. That of an older release, which may be the newest
// of its major version, writes it as any other option, and its server refuses it.
const attributeVersion = "pg_attver"

// setOptions is the statement in which pg_dump sets the options of a column.
var setOptions = regexp.MustCompile(`^(ALTER (?:FOREIGN )?TABLE ONLY .* ALTER COLUMN .* SET \()(.*)(\);)$`)

// optionFilter leaves the option out of what pg_restore writes. It looks at statements of the
// entries of tables only, between quotes of any kind.
type optionFilter struct {
	// before says that the last line was the first of a header, and inTable that the entry
	// is of a table.
	before, inTable bool
	// quote that is open; 0 for none.
	quote byte
}

// filter is what is left of a part of a script, in which long lines come in several parts.
func (f *optionFilter) filter(part []byte, begins bool) []byte {
	line := string(bytes.TrimRight(part, "\r\n"))
	if begins && f.isHeader(line) || !f.inTable {
		return part
	}
	opened := f.quote != 0
	f.follow(part)
	if opened || f.quote != 0 || !begins || !bytes.HasSuffix(part, []byte{'\n'}) {
		return part
	}
	found := setOptions.FindStringSubmatch(line)
	if found == nil {
		return part
	}
	options := strings.Split(found[2], ", ")
	left := slices.DeleteFunc(slices.Clone(options), func(o string) bool { return strings.HasPrefix(o, attributeVersion+"=") })
	switch len(left) {
	case len(options):
		return part
	case 0:
		return nil
	}
	return []byte(found[1] + strings.Join(left, ", ") + found[3] + "\n")
}

// isHeader notes where entries begin: pg_restore writes "--", the name and the type of the
// entry, and "--".
func (f *optionFilter) isHeader(line string) bool {
	if f.inTable && f.quote != 0 {
		return false
	}
	named := f.before && strings.HasPrefix(line, "-- Name: ")
	if named {
		f.quote = 0
		f.inTable = slices.ContainsFunc([]string{"TABLE", "FOREIGN TABLE", "MATERIALIZED VIEW"}, func(kind string) bool {
			return strings.Contains(line, "; Type: "+kind+"; ")
		})
	}
	f.before = line == "--"
	return named || f.before
}

// follow notes which quote is open after a part. A quote that is doubled closes and opens it.
func (f *optionFilter) follow(part []byte) {
	for _, c := range part {
		switch {
		case f.quote == c:
			f.quote = 0
		case f.quote == 0 && (c == '\'' || c == '"'):
			f.quote = c
		}
	}
}
