// Package loginsight classifies lines of a database's text log, and counts what it
// finds. It is pure: a line and a time come in, an Event comes out.
//
// A whitelist decides what is known. An Event holds a class of that list, an SQLSTATE
// of that list, the server's query ID and one rounded number. It holds no byte of the
// line: no statement, no identifier and no literal can be in it.
package loginsight
