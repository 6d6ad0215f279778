// Package server runs mysqld and talks to it: it finds the programs, has them check
// settings and make new data, starts the server, and stops it with a deadline.
package server
