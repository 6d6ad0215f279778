package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/member"
)

// programs are PostgreSQL's.
type programs struct{ member.Programs }

// version of the programs, such as 17.4, and its major part.
func (p programs) version(ctx context.Context) (string, int, error) {
	out, err := p.Run(ctx, "postgres", "--version")
	if err != nil {
		return "", 0, err
	}
	return parseVersion(out)
}

// parseVersion reads "postgres (PostgreSQL) 17.4 (Debian …)".
func parseVersion(out string) (string, int, error) {
	_, rest, found := strings.Cut(out, ") ")
	if found {
		version := strings.Fields(rest)[0]
		digits, _, _ := strings.Cut(version, ".")
		if len(digits) > 2 { // a development version, such as 18beta1
			digits = digits[:2]
		}
		if major, err := strconv.Atoi(digits); err == nil {
			return version, major, nil
		}
	}
	return "", 0, fmt.Errorf("postgres says an unknown version: %s", member.LastLine(out))
}
