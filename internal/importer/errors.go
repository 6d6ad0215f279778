package importer

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/backup"
)

// newPermanent is an error that another try is in vain for.
func newPermanent(format string, args ...any) error {
	return &backup.Permanent{Err: fmt.Errorf(format, args...)}
}

// passingClasses are SQLSTATEs, or their classes, whose cause may pass: connections,
// resources of a moment, deadlocks and serialization, the end of a server, a server that
// takes no writes, and a transaction that was idle for too long.
var passingClasses = []string{"08", "40", "57", "53300", "25006", "25P03", "25P04", "55P03"}

// isPassing says whether the cause of an SQLSTATE may pass.
func isPassing(code string) bool {
	return slices.ContainsFunc(passingClasses, func(class string) bool { return strings.HasPrefix(code, class) })
}

// explainConnection says why a server cannot be connected to. What the server answers is
// permanent, such as a wrong password, unless its cause may pass.
func explainConnection(side string, err error) error {
	answer := (*pgconn.PgError)(nil)
	if !errors.As(err, &answer) {
		if strings.Contains(err.Error(), "x509: ") || strings.Contains(err.Error(), "refused TLS") {
			return newPermanent("%s: %w", side, unwrapConnection(err))
		}
		return fmt.Errorf("%s: %w", side, unwrapConnection(err))
	}
	words := fmt.Errorf("%s: %s (SQLSTATE %s)", side, answer.Message, answer.Code) //nolint:err113 // its details may hold data
	if isPassing(answer.Code) {
		return words
	}
	return &backup.Permanent{Err: words}
}

// unwrapConnection is the cause without the list of what was tried.
func unwrapConnection(err error) error {
	connect := (*pgconn.ConnectError)(nil)
	if errors.As(err, &connect) && connect.Unwrap() != nil {
		return connect.Unwrap()
	}
	return err
}

// saidError is an error of psql with VERBOSITY=verbose, which begins its line: the context of
// another error may quote rows that look like one.
var saidError = regexp.MustCompile(`(?m)^(?:psql:\S+ )?(?:ERROR|FATAL|PANIC):  ([0-9A-Z]{5}): (.*)$`)

// explainTarget says why psql ended, without the details of the server: they may hold
// rows. Remedies name the field to change.
func explainTarget(ctx context.Context, stderr string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	found := saidError.FindAllStringSubmatch(stderr, -1)
	if found == nil {
		return fmt.Errorf("the new database: psql: %w: %s", err, firstError(stderr))
	}
	code, message := found[len(found)-1][1], found[len(found)-1][2]
	switch {
	case strings.HasPrefix(code, dataClass):
		message, _, _ = strings.Cut(message, `"`)
		message = strings.TrimRight(message, ": ")
	case strings.HasPrefix(code, raisedClass):
		message = "a function of the source, such as of an index or a generated column, has raised an error"
	}
	words := fmt.Errorf("the new database: %s (SQLSTATE %s)%s", message, code, remedyOf(code)) //nolint:err113 // made of what psql said
	if isPassing(code) || code == codeContent {
		return words
	}
	return &backup.Permanent{Err: words}
}

// dataClass of SQLSTATEs has messages that quote a value.
const dataClass = "22"

// raisedClass of SQLSTATEs has messages of the source's own functions: they may hold rows.
const raisedClass = "P0"

func remedyOf(code string) string {
	switch code {
	case "53100":
		return ": raise spec.storage.size"
	case "53200":
		return ": raise max_locks_per_transaction in spec.parameters, or spec.resources"
	case "42704":
		return ": create what is missing as the superuser, and ask for another try (docs/guides/import.md), or leave it out of the source's database"
	case "42501":
		return ": only a superuser may create this; leave it out of the source's database, or import by hand"
	}
	return ""
}

// permanentDump are words of pg_dump and pg_restore for what does not pass.
var permanentDump = regexp.MustCompile(`permission denied|must be (owner|superuser)|row-level security|aborting because of server version mismatch|does not exist|unsupported|invalid byte sequence|has no equivalent`)

// explainDump says why pg_dump or pg_restore ended.
func explainDump(ctx context.Context, program, stderr string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cause := firstError(stderr)
	words := fmt.Errorf("the source: %s: %w: %s", program, err, cause)
	// A snapshot that does not exist is of a server that was restarted, or is another one.
	if permanentDump.MatchString(cause) && !strings.Contains(cause, "snapshot") {
		return &backup.Permanent{Err: words}
	}
	return words
}

// serverSays is how pg_dump begins the line of what a server answered to a COPY.
const serverSays = "Error message from server: "

// firstError is the first line in which a program names an error, with what a server answered.
func firstError(text string) string {
	_, answer, _ := strings.Cut(text, serverSays)
	answer, _, _ = strings.Cut(answer, "\n")
	for line := range strings.Lines(text) {
		if strings.Contains(line, "error:") {
			return strings.TrimSpace(strings.TrimSpace(line) + " " + answer)
		}
	}
	return lastLine(text)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
