package server

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
)

// Applied is what a running server has made of new settings.
type Applied struct {
	// Taken settings hold now.
	Taken []string
	// Pending settings wait for the next start.
	Pending []string
	// Refused settings, with what the server says, and Unclear ones: they may be taken later.
	Refused, Unclear map[string]string
}

// ApplySettings changes settings of a running server, in its memory only. An error is one
// of the connection: what was not tried yet may be tried again.
func ApplySettings(ctx context.Context, db *sql.DB, changes []settings.Change) (Applied, error) {
	a := Applied{Refused: map[string]string{}, Unclear: map[string]string{}}
	for _, change := range changes {
		verdict, err := applyChange(ctx, db, change)
		switch {
		case err == nil:
			a.Taken = append(a.Taken, change.Name)
		case verdict == settings.NeedsRestart:
			a.Pending = append(a.Pending, change.Name)
		case verdict == settings.WrongValue || verdict == settings.WrongType:
			a.Refused[change.Name] = err.Error()
		case ErrorNumber(err) != 0:
			a.Unclear[change.Name] = err.Error()
		default:
			return a, fmt.Errorf("set %s: %w", change.Name, err)
		}
	}
	return a, nil
}

func applyChange(ctx context.Context, db *sql.DB, change settings.Change) (settings.Verdict, error) {
	var verdict settings.Verdict
	var err error
	for _, statement := range change.Statements {
		if _, err = db.ExecContext(ctx, statement); err == nil {
			return verdict, nil
		}
		if verdict = settings.JudgeError(ErrorNumber(err)); verdict != settings.WrongType {
			break
		}
	}
	return verdict, err
}
