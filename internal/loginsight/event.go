package loginsight

import (
	"math"
	"time"
)

// Event is what is kept of one line.
type Event struct {
	Class *Class
	// SQLSTATE of the whitelist, such as 40P01; empty where the class has none. It is
	// the rule's constant and not the line's text.
	SQLSTATE string
	// QueryID as the server computed it; 0 for none.
	QueryID int64
	// Value in the class's unit, rounded to two digits; 0 for none.
	Value float64
	// Time of the line; that of its reading where the line has none.
	Time time.Time
}

// Result says what a line is.
type Result int

const (
	// Unknown lines match no rule, or are no entry of the database's.
	Unknown Result = iota
	// Known lines are an Event.
	Known
	// Continued lines belong to the entry before: further lines of a message, DETAIL,
	// HINT, CONTEXT and STATEMENT. They are not read.
	Continued
)

// Parser reads lines of one engine's text log. It keeps nothing of a line.
type Parser func(line string, now time.Time) (Event, Result)

// RoundValue keeps two digits of a number, so that no number that a client chose
// can be read back.
func RoundValue(v float64) float64 {
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Round(math.Round(v/unit)*unit*1e6) / 1e6
}

// readNumber reads the decimal number that a text begins with, and the text behind it.
func readNumber(text string) (v float64, rest string, found bool) {
	i, scale := 0, 0.0
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9' && scale == 0:
			v = v*10 + float64(c-'0')
		case c >= '0' && c <= '9':
			v += float64(c-'0') * scale
			scale /= 10
		case c == '.' && scale == 0 && i > 0:
			scale = 0.1
		default:
			return v, text[i:], i > 0
		}
		if i >= 24 { // longer than any number that a server writes
			return 0, text, false
		}
	}
	return v, "", i > 0
}

// numberBehind reads the number that stands behind a word.
func numberBehind(text, word string) (float64, bool) {
	for i := 0; i+len(word) <= len(text); i++ {
		if text[i:i+len(word)] == word {
			v, _, found := readNumber(text[i+len(word):])
			return v, found
		}
	}
	return 0, false
}
