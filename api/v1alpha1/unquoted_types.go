package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Parameters are settings of a database by name. A whole number without quotes
// is taken as its digits. The API server accepts no other number and no boolean,
// since YAML does not keep how they were written: 1.10 is 1.1 to it, and on is
// true.
type Parameters map[string]string

// UnmarshalJSON reads values that are strings or whole numbers.
func (p *Parameters) UnmarshalJSON(data []byte) error {
	var written map[string]unquoted
	if err := json.Unmarshal(data, &written); err != nil {
		return err
	}
	if written == nil {
		*p = nil
		return nil
	}
	*p = make(Parameters, len(written))
	for name, value := range written {
		(*p)[name] = string(value)
	}
	return nil
}

// PostgresVersion is a version of PostgreSQL. A major version without quotes is
// taken as its digits. A minor version must be in quotes: 17.10 is 17.1 to YAML.
type PostgresVersion string

// UnmarshalJSON reads a string or a whole number.
func (v *PostgresVersion) UnmarshalJSON(data []byte) error {
	return (*unquoted)(v).UnmarshalJSON(data)
}

// DatabaseVersion is a version of a database system. A major version without quotes
// is taken as its digits. A minor version must be in quotes.
type DatabaseVersion string

// UnmarshalJSON reads a string or a whole number.
func (v *DatabaseVersion) UnmarshalJSON(data []byte) error {
	return (*unquoted)(v).UnmarshalJSON(data)
}

// unquoted is a string that may be written as a whole number.
type unquoted string

// UnmarshalJSON reads a string or a whole number.
func (u *unquoted) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		*u = unquoted(text)
		return nil
	}
	if _, isNumber := strconv.ParseInt(string(data), 10, 64); isNumber != nil {
		return fmt.Errorf("%s is neither a string nor a whole number: %w", data, err)
	}
	*u = unquoted(data)
	return nil
}
